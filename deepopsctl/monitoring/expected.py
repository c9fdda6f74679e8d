"""What `validate monitoring` should find, by cluster.yml and the product's own files: not what Prometheus believes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deepopsctl.monitoring import collectors, ports, queries, web_config
from deepopsctl.monitoring.alert_routing import NOBODY
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.monitoring.queries import Needs
from deepopsctl.monitoring.targets import label_of, targets_of
from deepopsctl.node_programs.services.log_collector.places import DIRECTORY

# Alerts of this severity Alertmanager sends to the receiver without an address.
NOWHERE = {"label": "severity", "value": "none", "receiver": NOBODY}
# Written every 15 s and scraped as often; a busy node may be late once (seconds).
_OLDEST_S = 90.0
# Slurm is queried every 30 s, and may be slow.
_OLDEST_SLURM_S = 150.0
# Data of the suite's own job: queries that need it run only while the job runs.
_JOB = frozenset({Needs.JOBS, Needs.STARTED})


def everything(nodes: Sequence[MonitoredNode], rules_directory: Path) -> dict[str, object]:
    """The suite's expectations for a cluster; no passwords."""
    here = next(node for node in nodes if node.name == node.monitoring_host)
    return {
        **prometheus(nodes),
        "alertmanager": f"http://{ports.at(here, 'alertmanager')}",
        "targets": targets(nodes),
        "textfiles": textfiles(nodes),
        "rules": rules(rules_directory),
        "queries": asked(here.cluster, nodes),
        "route": NOWHERE,
        # journals of all nodes on the monitoring host
        "journals": DIRECTORY if here.is_on("logs") else "",
    }


def prometheus(nodes: Sequence[MonitoredNode]) -> dict[str, str]:
    """Where it answers, and who logs in."""
    here = next(node for node in nodes if node.name == node.monitoring_host)
    return {"prometheus": f"http://{ports.at(here, 'prometheus')}", "user": web_config.USER}


def targets(nodes: Iterable[MonitoredNode]) -> list[dict[str, str]]:
    """Everything that has to be scraped, with its scrape job, and its page where an address has several."""
    return [
        {
            "node": node.name,
            "job": label_of(target.exporter),
            "address": target.address,
            "page": target.labels.get("page", ""),
        }
        for node in nodes
        for target in targets_of(node)
    ]


def textfiles(nodes: Iterable[MonitoredNode]) -> dict[str, dict[str, float]]:
    """The text files that each node's node exporter serves, and how old they may be (seconds)."""
    by_node = {node.name: _textfiles(node) for node in nodes}
    return {name: files for name, files in by_node.items() if files}


def _textfiles(node: MonitoredNode) -> dict[str, float]:
    slurm = {"slurmmetrics.prom": _OLDEST_SLURM_S} if node.is_first_controller else {}
    return {**dict.fromkeys(collectors.textfiles(node), _OLDEST_S), **slurm}


def rules(directory: Path) -> dict[str, int]:
    """How many rules each of the product's files has."""
    return {path.name: _count(path) for path in sorted(directory.glob("*.yml"))}


def _count(path: Path) -> int:
    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return sum(len(group["rules"]) for group in document["groups"])


def asked(cluster: str, nodes: Sequence[MonitoredNode]) -> list[dict[str, object]]:
    """The queries of all dashboards that this cluster must have something for."""
    have = {*_JOB}
    have |= {Needs.GPUS} if any(target["job"] == "gpu" for target in targets(nodes)) else set()
    have |= {Needs.STORAGE} if any(node.mounts for node in nodes) else set()
    return [
        {"dashboard": query.dashboard, "panel": query.panel, "text": query.text, "job": query.needs in _JOB}
        for query in queries.for_cluster(cluster, have)
    ]

"""What `validate monitoring` should find, by cluster.yml and the product's own files: not what Prometheus believes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from deepopsctl.monitoring import node_metrics, prometheus_server, queries, scrape_config, slurm_metrics, web_config
from deepopsctl.monitoring.alert_routing import NOBODY
from deepopsctl.monitoring.dashboards.model import Needs
from deepopsctl.monitoring.resources import Machine, at
from deepopsctl.monitoring.targets import targets_of
from deepopsctl.node_programs.log_collector.places import FOLDER

# Alerts of this severity Alertmanager sends to the receiver without an address.
NOWHERE = {"label": "severity", "value": "none", "receiver": NOBODY}
# Written every 15 s and scraped as often; a busy node may be late once (seconds).
_OLDEST_S = 90.0
# Slurm is asked every 30 s, and may take its time.
_OLDEST_SLURM_S = 150.0
# What the suite's own job brings: queries that need it are asked only while it runs.
_JOB = frozenset({Needs.JOBS, Needs.STARTED})


def everything(machines: Sequence[Machine], rules_folder: Path) -> dict[str, object]:
    """All that the suite is told of a cluster; no passwords."""
    here = next(machine for machine in machines if machine.name == machine.monitoring_host)
    return {
        **prometheus(machines),
        "alertmanager": f"http://{at(here.address, prometheus_server.ALERTMANAGER_PORT)}",
        "targets": targets(machines),
        "textfiles": textfiles(machines),
        "rules": rules(rules_folder),
        "queries": asked(here.cluster, machines),
        "route": NOWHERE,
        # where the monitoring host keeps what all machines log
        "journals": FOLDER if here.is_on("logs") else "",
    }


def prometheus(machines: Sequence[Machine]) -> dict[str, str]:
    """Where it answers, and who logs in."""
    address = next(machine.address for machine in machines if machine.name == machine.monitoring_host)
    return {"prometheus": f"http://{at(address, prometheus_server.PROMETHEUS_PORT)}", "user": web_config.USER}


def targets(machines: Iterable[Machine]) -> list[dict[str, str]]:
    """Everything that has to be scraped, with its scrape job, and its page where an address has several."""
    return [
        {
            "node": machine.name,
            "job": scrape_config.label_of(target.exporter),
            "address": target.address,
            "page": target.labels.get("page", ""),
        }
        for machine in machines
        for target in targets_of(machine)
    ]


def textfiles(machines: Iterable[Machine]) -> dict[str, dict[str, float]]:
    """The text files that each machine's node exporter hands out, and how old they may be (seconds)."""
    found = {machine.name: _textfiles(machine) for machine in machines}
    return {name: files for name, files in found.items() if files}


def _textfiles(machine: Machine) -> dict[str, float]:
    slurm = {PurePath(slurm_metrics.LINK).name: _OLDEST_SLURM_S} if machine.is_first_controller else {}
    return {**dict.fromkeys(node_metrics.textfiles(machine), _OLDEST_S), **slurm}


def rules(folder: Path) -> dict[str, int]:
    """How many rules each of the product's files has."""
    return {path.name: _count(path) for path in sorted(folder.glob("*.yml"))}


def _count(path: Path) -> int:
    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return sum(len(group["rules"]) for group in document["groups"])


def asked(cluster: str, machines: Sequence[Machine]) -> list[dict[str, object]]:
    """The queries of all dashboards that this cluster must have something for."""
    have = {*_JOB}
    have |= {Needs.GPUS} if any(found["job"] == "gpu" for found in targets(machines)) else set()
    have |= {Needs.STORAGE} if any(machine.mounts for machine in machines) else set()
    return [
        {"dashboard": query.dashboard, "panel": query.panel, "text": query.text, "job": query.needs in _JOB}
        for query in queries.for_cluster(cluster, have)
    ]

"""What Prometheus scrapes: one file for all of its jobs, a line for each exporter. Pure.

Prometheus watches the file: adding or removing a node changes one file, without a restart or reload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import yaml

from deepopsctl.monitoring import (
    gpu_exporters,
    grafana,
    mysqld_exporter,
    node_exporter,
    prometheus_server,
    scrape_config,
    slurm_metrics,
    tls,
)
from deepopsctl.monitoring.resources import MonitoredNode, Target
from deepopsctl.text.header import MANAGED_HEADER
from deepopsctl.text.yaml_writer import flow

# which of the jobs below a line is for; Prometheus drops labels that begin so when it has chosen
EXPORTER = "__exporter"
# scheme of a target, if it differs from its job's
SCHEME = "__scheme__"
TLS_JOBS = frozenset(job.name for job in scrape_config.JOBS if job.may_use_tls)

# Each is called for each node. A new exporter is a function in its piece, and a line here.
SOURCES: tuple[Callable[[MonitoredNode], Iterable[Target]], ...] = (
    node_exporter.targets,
    mysqld_exporter.targets,
    slurm_metrics.targets,
    gpu_exporters.targets,
    prometheus_server.targets,
    grafana.targets,
)


def targets_of(node: MonitoredNode) -> list[Target]:
    """Everything that is scraped on one node."""
    return [target for source in SOURCES for target in source(node)]


def render(nodes: Iterable[MonitoredNode], in_clear: Collection[str] = ()) -> str:
    """The target file, in the order of `nodes`; exporters of nodes `in_clear` do not use TLS yet."""
    lines = [
        f"- {flow({'targets': [target.address], 'labels': _labels(node, target, in_clear)})}"
        for node in nodes
        for target in targets_of(node)
    ]
    return MANAGED_HEADER + "".join(f"{line}\n" for line in lines)


def asked_in_clear(config: str, targets: str) -> set[str]:
    """The nodes whose exporters a Prometheus with these two files scrapes without TLS; '' if it has none."""
    try:
        jobs = (_read(config) or {}).get("scrape_configs", [])
        lines = _read(targets) or []
        by_tls = {job["job_name"] for job in jobs if job.get("scheme") == "https"}
        labels = [line["labels"] for line in lines]
        return {each["node"] for each in labels if each[EXPORTER] in TLS_JOBS and not _is_asked_by_tls(each, by_tls)}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        # edited manually: it is replaced as a whole
        return set()


def _is_asked_by_tls(labels: Mapping[str, str], by_tls: Collection[str]) -> bool:
    # before there was a scrape job of its own for the first controller's, all were one
    return labels.get(SCHEME, "") != "http" and bool({labels[EXPORTER], "node"} & set(by_tls))


def _read(text: str) -> Any:
    # libyaml's, where it is there: a thousand nodes are two thousand lines
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)


def _labels(node: MonitoredNode, target: Target, in_clear: Collection[str]) -> dict[str, str]:
    clear = node.is_on(tls.SWITCH) and node.name in in_clear and target.exporter in TLS_JOBS
    scheme = {SCHEME: "http"} if clear else {}
    named = {"cluster": node.cluster, "node": node.name, "instance": node.name}
    return {EXPORTER: target.exporter, **scheme, **named, **target.labels}

"""What Prometheus scrapes: one file for all of its jobs, a line for each exporter. Pure.

Prometheus watches the file: adding or removing a node changes one file, without a restart or reload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from deepopsctl.monitoring import ports
from deepopsctl.monitoring.gpu_exporter_choice import Exporter
from deepopsctl.monitoring.monitored_node import MonitoredNode, at
from deepopsctl.slurm.native_metrics import PAGES
from deepopsctl.text.header import MANAGED_HEADER
from deepopsctl.text.yaml_writer import flow

FILE = "/etc/prometheus/targets/deepops.yml"
# which of the jobs of roles/prometheus a line is for; Prometheus drops labels that begin so when it has chosen
EXPORTER = "__exporter"
# scheme of a target, if it differs from its job's
SCHEME = "__scheme__"
# scrape job of the first controller's node exporter: its Slurm metrics are about all nodes
CONTROLLER = "controller"
TLS_JOBS = frozenset(("node", CONTROLLER, "gpu", "mysqld"))


@dataclass(frozen=True, slots=True)
class Target:
    """`exporter` is the name of the scrape job that it belongs to; `address` is HOST:PORT."""

    exporter: str
    address: str
    # in addition to those that all have: cluster, node, instance
    labels: Mapping[str, str] = field(default_factory=dict)


def label_of(job: str) -> str:
    """The label `job` of a scrape job's figures: the first controller's node exporter is one like the others."""
    return "node" if job == CONTROLLER else job


def _node(node: MonitoredNode) -> tuple[Target, ...]:
    return (Target(CONTROLLER if node.is_first_controller else "node", ports.at(node, "node")),)


def _mysqld(node: MonitoredNode) -> tuple[Target, ...]:
    here = "slurm_dbd" in node.groups and not node.is_on("database_elsewhere")
    return (Target("mysqld", ports.at(node, "mysqld")),) if here else ()


def _slurm(node: MonitoredNode) -> tuple[Target, ...]:
    """slurmctld itself, a page each, where Prometheus is to read them there."""
    if not (node.is_first_controller and node.is_on("slurm_native")):
        return ()
    address = at(node.address, int(str(node.settings.get("slurmctld_port", 6817))))
    # `page` distinguishes their `up`
    return tuple(Target("slurm", address, {"__metrics_path__": f"/metrics/{page}", "page": page}) for page in PAGES)


def _gpu(node: MonitoredNode) -> tuple[Target, ...]:
    exporter = Exporter(str(node.settings.get("gpu_exporter", Exporter.NONE)))
    return () if exporter is Exporter.NONE else (Target("gpu", ports.at(node, exporter.value)),)


def _servers(node: MonitoredNode) -> tuple[Target, ...]:
    """Both watch themselves, too."""
    if node.name != node.monitoring_host:
        return ()
    return tuple(Target(name, ports.at(node, name)) for name in ("prometheus", "alertmanager"))


def _grafana(node: MonitoredNode) -> tuple[Target, ...]:
    """Its own metrics need no password, like those of node exporters."""
    if node.name != node.monitoring_host or not node.is_on("grafana_is_scraped"):
        return ()
    return (Target("grafana", ports.at(node, "grafana")),)


# Each is called for each node. A new exporter is a function above, a line here, and a job of roles/prometheus.
SOURCES: tuple[Callable[[MonitoredNode], Iterable[Target]], ...] = (_node, _mysqld, _slurm, _gpu, _servers, _grafana)


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
    clear = node.is_on("exporter_tls") and node.name in in_clear and target.exporter in TLS_JOBS
    scheme = {SCHEME: "http"} if clear else {}
    named = {"cluster": node.cluster, "node": node.name, "instance": node.name}
    return {EXPORTER: target.exporter, **scheme, **named, **target.labels}

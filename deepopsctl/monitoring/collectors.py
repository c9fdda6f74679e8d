"""What deepops-nodemetrics collects on a node: settings of each of its collectors. Pure.

A collector runs where its function below gives it settings. A new one is a module of
node_programs/services/node_metrics with a line in its collectors.py, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from deepopsctl.model.storage import Platform
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.node_programs.services.node_metrics.jobmap import DCGM_DIRECTORY, DIRECTORY
from deepopsctl.storage.node_plan import plan_node
from deepopsctl.storage.writer import from_variable
from deepopsctl.text.answers import texts

# certificates of a node: of its exporters, and of what sends journals (roles/monitoring_node)
OF_EXPORTERS = ("/etc/prometheus/deepops-tls/authority.crt", "/etc/prometheus/deepops-tls/node.crt")
OF_SCRAPER = "/etc/prometheus/deepops-tls/scraper.crt"
OF_LOGS = ("/etc/deepopsctl/pki/authority.crt", "/etc/deepopsctl/pki/node.crt")
# by what apt knows repositories that deploys add
_KEYRINGS = "/etc/apt/keyrings/deepopsctl-*"


def _jobs(node: MonitoredNode) -> Mapping[str, object] | None:
    return {"map": DIRECTORY, "dcgm": DCGM_DIRECTORY, "gpus": list(node.gpus)} if node.runs_jobs else None


def _certificates(node: MonitoredNode) -> Mapping[str, object] | None:
    paths = [*OF_LOGS] if node.is_on("logs") else []
    if node.speaks_tls:
        paths += OF_EXPORTERS
        paths += [OF_SCRAPER] if node.name == node.monitoring_host else []
    if node.name == node.monitoring_host:
        paths += [str(node.settings.get("grafana_certificate") or "")]
    # only deepopsctl's repositories are signed by keys that a deploy installs
    if node.name == node.monitoring_host or "nvidia_gpu" in node.groups:
        paths += [_KEYRINGS]
    paths += texts(node.settings.get("certificates"))
    return {"paths": [path for path in paths if path]} if any(paths) else None


def _mounts(node: MonitoredNode) -> Mapping[str, object] | None:
    # names, paths and what is required are the same on every platform
    plan = plan_node(from_variable(node.mounts), node.name, {}, Platform(""))
    wanted = [
        {"name": each.name, "path": each.path, "required": each.required, "automount": bool(each.automount)}
        for each in plan.mounts
    ]
    return {"mounts": wanted} if wanted else None


# Settings of each collector on a node; None if it has nothing to do.
COLLECTORS: Mapping[str, Callable[[MonitoredNode], Mapping[str, object] | None]] = MappingProxyType(
    {"jobs": _jobs, "certificates": _certificates, "mounts": _mounts}
)


def settings_of(node: MonitoredNode) -> dict[str, Mapping[str, object]]:
    """The settings of each collector that has something to do on a node."""
    return {name: settings for name, ask in COLLECTORS.items() if (settings := ask(node)) is not None}


def textfiles(node: MonitoredNode) -> list[str]:
    """The names of the text files that the daemon writes there."""
    return [f"nodemetrics-{name}.prom" for name in settings_of(node)]


def idle_mounts(node: MonitoredNode) -> list[str]:
    """Mount points with automount_idle: querying their size would keep them mounted."""
    mounts = from_variable(node.mounts)
    return [mount.path for mount in mounts if mount.automount_idle and node.name in mount.nodes]

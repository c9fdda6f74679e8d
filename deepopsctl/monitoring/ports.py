"""At which ports exporters and servers of monitoring listen: a site's variable, or the default of its role."""

from __future__ import annotations

from functools import cache

import yaml

from deepopsctl.content import content_dir
from deepopsctl.monitoring.monitored_node import MonitoredNode, at as host_port
from deepopsctl.text.answers import mapping

# the role and the variable, by exporter; `ports` of `deepops_monitoring_settings` has what a site sets
VARIABLES = {
    "node": ("monitoring_node", "monitoring_node_exporter_port"),
    "mysqld": ("monitoring_node", "monitoring_node_mysqld_port"),
    "dcgm": ("monitoring_node", "monitoring_node_dcgm_port"),
    "nvitop": ("monitoring_node", "monitoring_node_nvitop_port"),
    "prometheus": ("prometheus", "prometheus_port"),
    "alertmanager": ("alertmanager", "alertmanager_port"),
    "grafana": ("grafana", "grafana_port"),
}


def of(node: MonitoredNode, name: str) -> int:
    """The port of an exporter or server."""
    value = mapping(node.settings.get("ports")).get(name)
    return int(str(value)) if value else default(name)


def at(node: MonitoredNode, name: str) -> str:
    """Where an exporter or server of this node listens."""
    return host_port(node.address, of(node, name))


def server(node: MonitoredNode, name: str) -> str:
    """Where a server of the monitoring host listens."""
    return host_port(node.monitoring_address, of(node, name))


@cache
def default(name: str) -> int:
    """The port of the role that starts it."""
    role, variable = VARIABLES[name]
    path = content_dir() / "roles" / role / "defaults" / "main.yml"
    return int(yaml.safe_load(path.read_text(encoding="utf-8"))[variable])

"""Jinja filters for the roles of monitoring: thin wrappers over deepopsctl.monitoring."""

from __future__ import annotations

import base64
import socket
from dataclasses import replace
from pathlib import Path

from deepopsctl.gpus import gres, notation
from deepopsctl.monitoring import expected, grafana, node_plan, prometheus_server, targets
from deepopsctl.monitoring.resources import MonitoredNode, Needs
from deepopsctl.text import node_sets as text_node_sets


def monitoring_node_plan(cluster, host, groups, platform):
    """What every kind of machine needs, as node_state takes it."""
    node = _machine(cluster, host, groups, platform)
    # of one machine alone: to look for each of a thousand takes its time
    return _as_state(node_plan.plan_node(replace(node, gpus=_gpus(cluster["nodes"], node.name))))


def monitoring_prometheus_plan(cluster, host, groups, platform, members, rules):
    """What Prometheus needs; `members` are all groups with their hosts, `rules` the directory of its rules."""
    node = _machine(cluster, host, groups, platform)
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(rules).glob("*.yml"))}
    return _as_state(prometheus_server.prometheus(node, monitoring_targets(cluster, members), texts))


def monitoring_alertmanager_plan(cluster, host, groups, platform):
    """What Alertmanager needs."""
    return _as_state(prometheus_server.alertmanager(_machine(cluster, host, groups, platform)))


def monitoring_grafana_plan(cluster, host, groups, platform, wanted, certificate, key):
    """What Grafana needs, and where it answers to whom."""
    node, tls = _machine(cluster, host, groups, platform), grafana.Tls(str(certificate), str(key))
    state = _as_state(grafana.needs(node, tls) if wanted else Needs())
    return {"state": state, "url": grafana.url(node, tls), "user": grafana.ADMIN}


def monitoring_targets(cluster, members):
    """The text of Prometheus's file of targets."""
    return targets.render(_machines(cluster, members), [str(name) for name in cluster.get("in_clear", [])])


def monitoring_in_clear(config, targets_file, switched):
    """The machines that a Prometheus with these two files (base64) asks without TLS, and that no run has switched."""
    texts = [base64.b64decode(text).decode("utf-8", "replace") for text in (config, targets_file)]
    return sorted(targets.asked_in_clear(*texts) - {str(name) for name in switched})


def monitoring_scraped_plan(cluster, members, nodes, left_out):
    """Where Prometheus answers, and what it should scrape of these nodes; not of jobs that this run has left out."""
    hosts, reached = _machines(cluster, members), {str(name) for name in nodes}
    wanted = expected.targets(host for host in hosts if host.name in reached)
    return {"targets": [target for target in wanted if target["job"] not in left_out], **expected.prometheus(hosts)}


def monitoring_expected(cluster, members, rules):
    """What `validate monitoring` should find; `rules` is the directory of Prometheus's rules."""
    return expected.everything(_machines(cluster, members), Path(rules))


def _machines(cluster, members):
    groups_of = {}
    for group, names in members.items():
        for name in names:
            groups_of.setdefault(name, []).append(group)
    return [_machine(cluster, name, groups_of.get(name, []), "") for name in members.get("slurm_cluster", [])]


def _machine(cluster, host, groups, platform):
    addresses, monitoring_host = cluster["addresses"], str(cluster["monitoring_host"])
    return MonitoredNode(
        name=str(host),
        cluster=str(cluster["name"]),
        groups=frozenset(str(group) for group in groups),
        address=_address(str(host), addresses),
        platform=str(platform),
        controller=str(cluster["controller"]),
        monitoring_host=monitoring_host,
        monitoring_address=_address(monitoring_host, addresses),
        members=_plain(cluster.get("members", ())) if host == monitoring_host else (),
        mounts=_plain(cluster["mounts"]),
        settings=_plain(_settings(str(host), cluster)),
        secrets=_plain(cluster["secrets"]),
    )


def _gpus(node_sets, name):
    declared = next((entry.get("gpus") for entry in node_sets if name in text_node_sets.expand(entry["names"])), None)
    gpus = notation.from_inventory(declared or {})
    return tuple(gres.device_names(gpus)) if gpus else ()


def _plain(value):
    """The same without what Ansible notes of where a value came from: a writer of YAML does not know such values."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def _settings(host, cluster):
    """Settings are of the machine that asks; of others only what all have to know of them is asked for."""
    if "gpu_exporters" not in cluster:
        return cluster["settings"]
    return {**cluster["settings"], "gpu_exporter": cluster["gpu_exporters"].get(host, "none")}


def _address(name, addresses):
    """A machine's address; one that cluster.yml names without is looked up here, where it has to resolve."""
    if addresses.get(name):
        return str(addresses[name])
    try:
        address = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return name
    # its own name for itself, where that is this machine: nobody else would reach it there
    return name if address.startswith("127.") or address == "::1" else address


def _as_state(needs: Needs):
    return {
        "packages": list(needs.packages),
        "hold_units": [unit.name for unit in needs.units],
        "directories": [
            {"path": directory.path, "mode": directory.mode, "owner": directory.owner, "group": directory.group}
            for directory in needs.directories
        ],
        "files": [_file(file) for file in needs.files],
        "units": [_unit(unit) for unit in needs.units] + [{"name": name, "running": False} for name in needs.stopped],
        "problems": list(needs.problems),
    }


def _file(file):
    result = {"path": file.path, "mode": file.mode, "owner": file.owner, "group": file.group}
    if file.validate:
        result["validate"] = list(file.validate)
    if file.secret:
        return {**result, "secret_base64": base64.b64encode(file.content.encode()).decode()}
    return {**result, "content": file.content}


def _unit(unit):
    result = {"name": unit.name, "restart_on": list(unit.restart_on), "reload_on": list(unit.reload_on)}
    return {**result, "port": unit.port} if unit.port else result


class FilterModule:
    """Registers the filters."""

    def filters(self):
        """Name -> function."""
        return {
            "monitoring_alertmanager_plan": monitoring_alertmanager_plan,
            "monitoring_expected": monitoring_expected,
            "monitoring_grafana_plan": monitoring_grafana_plan,
            "monitoring_in_clear": monitoring_in_clear,
            "monitoring_node_plan": monitoring_node_plan,
            "monitoring_prometheus_plan": monitoring_prometheus_plan,
            "monitoring_scraped_plan": monitoring_scraped_plan,
            "monitoring_targets": monitoring_targets,
        }

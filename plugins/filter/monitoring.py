"""Jinja filters for the roles of monitoring: thin wrappers over deepopsctl.monitoring."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority
from deepopsctl.gpus import gres, notation
from deepopsctl.monitoring import (
    alert_routing,
    alert_rules,
    collectors,
    expected,
    ports,
    problems,
    targets,
    web_config,
)
from deepopsctl.monitoring.monitored_node import MonitoredNode, at
from deepopsctl.node_programs import shipping
from deepopsctl.text import node_sets as text_node_sets


def monitoring_collectors(cluster: Mapping[str, Any], host: object, groups: Sequence[str]) -> Any:
    """What deepops-nodemetrics collects on a node."""
    node = _unaddressed(cluster, host, groups)
    # of one node alone: to look for each of a thousand takes its time
    return _plain(collectors.settings_of(replace(node, gpus=_gpus(cluster["nodes"], node.name))))


def monitoring_idle_mounts(cluster: Mapping[str, Any], host: Any) -> list[str]:
    """Mount points of a node that are mounted only while they are used."""
    return collectors.idle_mounts(_unaddressed(cluster, host, []))


def monitoring_node_problems(cluster: Mapping[str, Any], host: Any, groups: Sequence[str]) -> list[str]:
    """Why the settings can't work on a node."""
    return problems.problems(replace(_unaddressed(cluster, host, groups), secrets=cluster["secrets"]))


def monitoring_certificate(
    authority: object, name: str, address: object, directory: str, key: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A node's certificate, its key and who signed it, as files of node_state; `key` has owner and mode of the key."""
    signer = Authority(str(authority))
    made = signer.identify(str(name), [str(address)], validity.today())
    secret = base64.b64encode(made.key.encode()).decode()
    return [
        {"path": f"{directory}/authority.crt", "content": signer.certificate},
        {"path": f"{directory}/node.key", "secret_base64": secret, **key},
        {"path": f"{directory}/node.crt", "content": made.certificate},
    ]


def monitoring_scraper(
    authority: object, scraper: str, host: Any, directory: str, key: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Who may scrape a node's exporters, and on the monitoring host by which certificate, as files of node_state.

    An authority of its own: some releases of the exporters accept any certificate of an authority, and nodes have some
    of the cluster's. It goes by the name of the monitoring host, so that the former one's is worth nothing.
    """
    signer = Authority(str(authority)).derived(f"scrapers {scraper}")
    trusted = [{"path": f"{directory}/scrapers.crt", "content": signer.certificate}]
    if scraper != host:
        return trusted
    made = signer.identify(str(scraper), [], validity.today())
    secret = base64.b64encode(made.key.encode()).decode()
    return [
        *trusted,
        {"path": f"{directory}/scraper.key", "secret_base64": secret, **key},
        {"path": f"{directory}/scraper.crt", "content": made.certificate},
    ]


def node_program_files(name: str, launcher: object, module: str = "cli") -> list[dict[str, Any]]:
    """A program of deepopsctl/node_programs and the command that starts it, as files of node_state."""
    return [asdict(file) for file in shipping.program(str(name), str(launcher), str(module))]


def host_port(address: object, port: int) -> str:
    """`192.0.2.1:9100`, `[2001:db8::1]:9100`."""
    return at(str(address), int(port))


def monitoring_rules(changes: Any, directory: str, destination: str, page: str = "") -> list[dict[str, Any]]:
    """Prometheus's rule files in a directory, with a site's overrides of alerts, as files of node_state.

    `page` is the address of the page of alerts, which each of them then has.
    """
    texts = _rules(directory)
    if not alert_rules.validate_overrides(texts, _plain(changes)):
        texts = alert_rules.with_overrides(texts, _plain(changes))
    texts = alert_rules.with_addresses(texts, str(page))
    check = ["promtool", "check", "rules", "%s"]
    return [{"path": f"{destination}/{name}", "content": text, "validate": check} for name, text in texts.items()]


def monitoring_alert_problems(changes: Any, directory: str, page: str = "") -> list[str]:
    """What is wrong with a site's overrides of alerts, and with the address of their page."""
    return [*alert_rules.validate_overrides(_rules(directory), _plain(changes)), *alert_rules.page_problems(str(page))]


def monitoring_alert_routing(receivers: Any, routes: Any, email: Any, grouping: Any, secrets: Any) -> dict[str, Any]:
    """Receivers and routes as Alertmanager has them, and the problems of the settings."""
    wanted = alert_routing.wanted_by(*map(_plain, (receivers, routes, email, grouping, secrets)))
    return asdict(alert_routing.routing(wanted))


def monitoring_web_hash(password: str, purpose: object) -> str:
    """The hash of a password for the pages of a server."""
    return web_config.hashed(str(password), str(purpose))


def _rules(directory: str) -> dict[str, Any]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(directory).glob("*.yml"))}


def monitoring_dashboards(directory: str, destination: str, interval: Any) -> list[dict[str, str]]:
    """The dashboards of a directory as files of node_state; no panel has a smaller step than metrics are scraped."""
    step = f'"interval": "{interval}"'
    files = ((path, path.read_text(encoding="utf-8")) for path in sorted(Path(directory).glob("*.json")))
    return [
        {"path": f"{destination}/{path.name}", "content": text.replace('"interval": "15s"', step)}
        for path, text in files
    ]


def monitoring_address(addresses: Mapping[str, object], host: object) -> str:
    """The address that a node is reached at by others."""
    return _address(str(host), addresses)


def monitoring_server(cluster: Mapping[str, Any], name: str) -> str:
    """HOST:PORT of `prometheus`, `alertmanager` or `grafana`."""
    return ports.server(_cluster_node(cluster, cluster["monitoring_host"], []), name)


def monitoring_targets(cluster: Mapping[str, Any], members: Any) -> str:
    """The text of Prometheus's file of targets."""
    return targets.render(_cluster_nodes(cluster, members), [str(name) for name in cluster.get("in_clear", [])])


def monitoring_in_clear(files: Any, switched: Any) -> list[str]:
    """The nodes that a Prometheus scrapes without TLS and no run has switched; `files` is what `tail -n +1` prints."""
    config, _, targets_file = str(files).partition(f"==> {targets.FILE} <==\n")
    return sorted(targets.asked_in_clear(config.partition("\n")[2], targets_file) - {str(name) for name in switched})


def monitoring_scraped_plan(cluster: Mapping[str, Any], members: Any, nodes: Any) -> dict[str, Any]:
    """Where Prometheus answers, and what it should scrape of these nodes."""
    hosts, reached = _cluster_nodes(cluster, members), {str(name) for name in nodes}
    return {"targets": expected.targets(host for host in hosts if host.name in reached), **expected.prometheus(hosts)}


def monitoring_expected(cluster: Mapping[str, Any], members: Any) -> dict[str, object]:
    """What `validate monitoring` should find, also of Prometheus's rules."""
    rules = Path(__file__).parents[2] / "roles" / "prometheus" / "files" / "rules"
    return expected.everything(_cluster_nodes(cluster, members), rules)


def systemd_argument(word: str) -> str:
    """A word of systemd's ExecStart that reaches the program as it is."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(letter in word for letter in " \t'\";\\") else escaped


def _cluster_nodes(cluster: Mapping[str, Any], members: Any) -> list[MonitoredNode]:
    groups_of: dict[str, list[str]] = {}
    for group, names in members.items():
        for name in names:
            groups_of.setdefault(name, []).append(group)
    return [_cluster_node(cluster, name, groups_of.get(name, [])) for name in members.get("slurm_cluster", [])]


def _cluster_node(cluster: Mapping[str, Any], host: Any, groups: Sequence[str]) -> MonitoredNode:
    addresses, monitoring_host = cluster["addresses"], str(cluster["monitoring_host"])
    return replace(
        _unaddressed(cluster, host, groups),
        address=_address(str(host), addresses),
        monitoring_address=_address(monitoring_host, addresses),
    )


def _unaddressed(cluster: Mapping[str, Any], host: Any, groups: Sequence[str]) -> MonitoredNode:
    """The same without addresses, which take time."""
    return MonitoredNode(
        name=str(host),
        cluster=str(cluster["name"]),
        groups=frozenset(str(group) for group in groups),
        address="",
        controller=str(cluster["controller"]),
        monitoring_host=str(cluster["monitoring_host"]),
        mounts=_plain(cluster["mounts"]),
        settings=_settings(str(host), cluster),
    )


def _gpus(node_sets: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
    declared = next((entry.get("gpus") for entry in node_sets if name in text_node_sets.expand(entry["names"])), None)
    gpus = notation.from_inventory(declared or {})
    return tuple(gres.device_names(gpus)) if gpus else ()


def _plain(value: Any) -> Any:
    """The same without what Ansible notes of where a value came from: a writer of YAML does not know such values."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


class _Settings(Mapping[str, Any]):
    """Settings that are templated when they are read: all of them take a quarter of a second."""

    def __init__(self, values: Any, known: Any) -> None:
        self._values, self._known = values, known

    def __getitem__(self, key: str) -> Any:
        return self._known[key] if key in self._known else _plain(self._values[key])

    def __iter__(self) -> Iterator[str]:
        return iter({*self._values, *self._known})

    def __len__(self) -> int:
        return len({*self._values, *self._known})


def _settings(host: Any, cluster: Mapping[str, Any]) -> _Settings:
    """Settings are of the node that asks; of others only what all have to know of them is asked for."""
    known = {"gpu_exporter": cluster["gpu_exporters"].get(host, "none")} if "gpu_exporters" in cluster else {}
    return _Settings(cluster["settings"], known)


def _address(name: str, addresses: Mapping[str, object]) -> str:
    """A node's address; one that cluster.yml names without is looked up here, where it has to resolve."""
    if addresses.get(name):
        return str(addresses[name])
    try:
        address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return name
    # its own name for itself, where that is the node itself: no other node would reach it there
    return name if address.startswith("127.") or address == "::1" else address


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())

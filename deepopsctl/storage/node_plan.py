"""What one node needs for all of its storage, and the exports of a managed server. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deepopsctl.model.storage import Client, Mount, Needs, NodeFile, NodeSecret, Platform
from deepopsctl.storage import systemd_units
from deepopsctl.storage.nfs import split_source
from deepopsctl.storage.registry import type_handlers


@dataclass(frozen=True, slots=True)
class NodeMount:
    """One mount on one node: the texts of its units, and what the kernel will report for it."""

    name: str
    path: str
    unit: str
    text: str
    automount: str
    required: bool
    # '' for one that comes with the distribution
    client: str = ""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Everything that one node needs."""

    packages: Mapping[str, str]
    files: tuple[NodeFile, ...]
    mounts: tuple[NodeMount, ...]
    problems: tuple[str, ...]
    secrets: tuple[NodeSecret, ...] = ()
    clients: tuple[Client, ...] = ()
    # commands that test whether the servers of a mount answer, by its name
    checks: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


def plan_node(mounts: Iterable[Mount], host: str, addresses: Mapping[str, str], platform: Platform) -> NodePlan:
    """The plan of one node; `addresses` are those of the cluster's nodes."""
    packages: dict[str, str] = {}
    files: dict[str, NodeFile] = {}
    secrets: dict[str, NodeSecret] = {}
    clients: dict[str, Client] = {}
    checks: dict[str, tuple[tuple[str, ...], ...]] = {}
    mount_plans, problems = [], []
    for mount in mounts:
        if host not in mount.nodes:
            continue
        needs = needs_on(mount, host, addresses, platform)
        problems += [f"storage {mount.name}: {problem}" for problem in needs.problems]
        packages.update(needs.packages)
        files.update((file.path, file) for file in needs.files)
        secrets.update((secret.path, secret) for secret in needs.secrets)
        # entries of one type on one node agree on it
        clients.update({needs.client.name: needs.client} if needs.client else {})
        checks.update({mount.name: needs.checks} if needs.checks else {})
        if needs.fstype:
            mount_plans.append(_node_mount(mount, needs))
    return NodePlan(
        packages,
        tuple(files.values()),
        tuple(mount_plans),
        tuple(dict.fromkeys(problems)),
        tuple(secrets.values()),
        tuple(clients.values()),
        checks,
    )


def needs_on(mount: Mount, host: str, addresses: Mapping[str, str], platform: Platform) -> Needs:
    """What one node needs for one mount; `fstype` is '' if there is nothing to mount."""
    if mount.server == host:
        return _bound(mount)
    return type_handlers()[mount.type].needs(_reached(mount, addresses), platform)


def required_on(mounts: Iterable[Mount], host: str) -> list[Mount]:
    """The mounts that a node must have to run jobs."""
    return [mount for mount in mounts if mount.required and host in mount.nodes]


def _node_mount(mount: Mount, needs: Needs) -> NodeMount:
    automount = systemd_units.automount_unit(mount) if mount.automount else ""
    unit = systemd_units.unit_name(mount.path)
    client = needs.client.name if needs.client else ""
    return NodeMount(
        mount.name, mount.path, unit, systemd_units.mount_unit(mount, needs), automount, mount.required, client
    )


def _bound(mount: Mount) -> Needs:
    """On the server itself: a bind mount of its directory at the clients' path; NFS to the same host can hang."""
    directory = split_source(mount.source)[1]
    if directory == mount.path:
        return Needs(directory, "")
    read_only = ("ro",) if mount.settings.get("read_only") or "ro" in mount.options else ()
    return Needs(directory, "none", ("bind", *read_only))


def _reached(mount: Mount, addresses: Mapping[str, str]) -> Mount:
    """The same with the server's address: names of the cluster are known on a node only after Slurm's deploy."""
    address = str(mount.settings.get("address", "")) if mount.server else ""
    address = address or addresses.get(mount.server, "")
    if not address:
        return mount
    server = f"[{address}]" if ":" in address else address
    return replace(mount, source=f"{server}:{split_source(mount.source)[1]}")


def clients_of(mount: Mount, addresses: Mapping[str, str]) -> Sequence[str]:
    """Who may mount a managed export: `clients` if set, else the addresses of the nodes that mount it."""
    clients = mount.settings.get("clients", ())
    if isinstance(clients, (list, tuple)) and clients:
        return [str(client) for client in clients]
    return [addresses.get(name) or name for name in mount.nodes if name != mount.server]

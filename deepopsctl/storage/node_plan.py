"""What one node needs for all of its storage: mounts, exports, and what the storage suite expects there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deepopsctl.model.storage import NETWORKED, Client, Mount, Needs, NodeFile, NodeSecret, Platform, StorageType
from deepopsctl.storage import systemd_units
from deepopsctl.storage.nfs import SQUASH, split_source
from deepopsctl.storage.quota import served
from deepopsctl.storage.registry import type_handlers
from deepopsctl.storage.values import is_below
from deepopsctl.text.answers import texts

# a mount's source, type and options are the same on every platform that has a client for it
_ANY = Platform("")
# what users may not bring with a file, and the option by which an entry keeps it: root of any node that has a shared
# file system can write a program there that runs with another user's rights on the others
WITHHELD = {"nosuid": "suid", "nodev": "dev"}


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
    mount_plans: list[NodeMount] = []
    problems: list[str] = []
    mounts = tuple(mounts)
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
    for served_directory in _served_directories(mounts, host):
        # before what is mounted below it, which it would hide
        below = (at for at, other in enumerate(mount_plans) if is_below(other.path, served_directory.path))
        mount_plans.insert(next(below, len(mount_plans)), served_directory)
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
        needs = _bound(mount)
    else:
        needs = type_handlers()[mount.type].needs(_reached(mount, addresses), platform)
    return replace(needs, options=(*needs.options, *withheld(needs.options)))


def withheld(options: Iterable[str]) -> tuple[str, ...]:
    """Of WITHHELD what options say nothing about."""
    written = frozenset(options)
    return tuple(flag for flag, kept in WITHHELD.items() if not written & {flag, kept})


def required_on(mounts: Iterable[Mount], host: str) -> list[Mount]:
    """The mounts that a node must have to run jobs."""
    return [mount for mount in mounts if mount.required and host in mount.nodes]


def clients_of(mount: Mount, addresses: Mapping[str, str]) -> Sequence[str]:
    """Who may mount a managed export: `clients` if set, else the addresses of the nodes that mount it."""
    if clients := texts(mount.settings.get("clients")):
        return [*clients]
    return [addresses.get(name) or name for name in mount.nodes if name != mount.server]


@dataclass(frozen=True, slots=True)
class Export:
    """An exported directory and its exports(5) line."""

    path: str
    line: str


def exports_of(mounts: Iterable[Mount], host: str, addresses: Mapping[str, str]) -> tuple[Export, ...]:
    """Exports of this node; a directory named by several entries is one export, for the clients of all of them."""
    clients: dict[str, dict[str, None]] = {}
    rules: dict[str, str] = {}
    for mount in mounts:
        if mount.server == host:
            path = split_source(mount.source)[1]
            clients.setdefault(path, {}).update(dict.fromkeys(clients_of(mount, addresses)))
            rules[path] = _rules(mount)
    return tuple(
        Export(path, " ".join([path, *(f"{client}({rules[path]})" for client in clients[path])]))
        for path in clients
        if clients[path]
    )


def under_exports(mounts: Iterable[Mount], host: str) -> list[str]:
    """The node's own file systems that directories which it exports are on, by name: they are mounted before."""
    mounts = tuple(mounts)
    exported = [split_source(mount.source)[1] for mount in mounts if mount.server == host]
    return [
        mount.name
        for mount in mounts
        if host in mount.nodes
        and mount.type not in NETWORKED
        and any(path == mount.path or is_below(path, mount.path) for path in exported)
    ]


def uses_rdma(mounts: Iterable[Mount], host: str) -> bool:
    """Whether any client mounts over RDMA from this node."""
    return any(mount.server == host and bool(mount.settings.get("rdma")) for mount in mounts)


def expected_on(mounts: Iterable[Mount], host: str, addresses: Mapping[str, str]) -> list[dict[str, object]]:
    """The entries of one node, as the module's arguments."""
    return [
        # a server holds users to a quota also where it has no mount of its own
        {**_expected(mount, host, addresses), "only_quota": host not in mount.nodes}
        for mount in mounts
        if host in mount.nodes or served([mount], host)
    ]


def wanted_on(mounts: Sequence[Mount], among: Iterable[str], addresses: Mapping[str, str]) -> list[dict[str, object]]:
    """Every entry with the nodes that mount it; its server has it as a separate entry."""
    hosts, entries = set(among), []
    for mount in mounts:
        served = [host for host in mount.nodes if host == mount.server]
        for nodes in ([host for host in mount.nodes if host not in served], served):
            here = [host for host in nodes if host in hosts]
            if here:
                entries.append({**_expected(mount, here[0], addresses), "nodes": here})
    return entries


def addresses_of(mounts: Iterable[Mount], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The servers' addresses, as the units have them; not those of a thousand nodes."""
    servers = {mount.server for mount in mounts if mount.server}
    return {name: str(hostvars[name].get("ansible_host", "")) for name in servers if name in hostvars}


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
    return Needs(directory, "none", ("bind", *read_only, *_about_rights(mount)))


def _about_rights(mount: Mount) -> tuple[str, ...]:
    return tuple(option for option in mount.options for pair in WITHHELD.items() if option in pair)


def _served_directories(mounts: Sequence[Mount], host: str) -> Iterator[NodeMount]:
    """Directories that a node exports, mounted on themselves so that clients' setuid files are plain ones here, too.

    Not where the node's own file system around it has these options, or an entry keeps setuid programs and devices.
    """
    own = [mount for mount in mounts if host in mount.nodes and mount.server != host]
    served = {split_source(mount.source)[1]: mount for mount in reversed(mounts) if mount.server == host}
    for directory, mount in sorted(served.items()):
        around = [each for each in own if each.path == directory or is_below(directory, each.path)]
        outer = max(around, key=lambda each: len(each.path), default=None)
        rights = _about_rights(mount)
        needs = Needs(directory, "none", ("bind", *rights, *withheld(rights)))
        needed = WITHHELD.keys() & set(needs.options)
        if not needed <= ({*outer.options, *withheld(outer.options)} if outer else set()):
            local = replace(mount, name=f"{mount.name}-served", path=directory, automount=False, required=False)
            yield _node_mount(local, needs)


def _reached(mount: Mount, addresses: Mapping[str, str]) -> Mount:
    """The same with the server's address: names of the cluster are known on a node only after Slurm's deploy."""
    address = str(mount.settings.get("address", "")) if mount.server else ""
    address = address or addresses.get(mount.server, "")
    if not address:
        return mount
    server = f"[{address}]" if ":" in address else address
    return replace(mount, source=f"{server}:{split_source(mount.source)[1]}")


def _rules(mount: Mount) -> str:
    access = "ro" if mount.settings.get("read_only") else "rw"
    # sync: what the server confirms is on its disk; a crash loses nothing that a client believes to be written
    return f"{access},sync,no_subtree_check,{SQUASH[str(mount.settings.get('squash', 'root'))]}"


def _expected(mount: Mount, host: str, addresses: Mapping[str, str]) -> dict[str, object]:
    needs = needs_on(mount, host, addresses, _ANY)
    nfs = mount.type is StorageType.NFS
    return {
        "name": mount.name,
        "type": mount.type.value,
        "path": mount.path,
        "source": needs.what,
        "fstype": needs.fstype,
        "options": [option for option in needs.options if option not in ("bind", "rbind")],
        "shared": mount.type in NETWORKED or bool(mount.settings.get("shared")),
        "squash": str(mount.settings.get("squash", "root")) if nfs and mount.server else "",
        "user_writable": mount.user_writable,
        "quota": next(iter(served([mount], host)), {}),
    }

"""`deepopsctl init`: from options and a node list to a Cluster. The files are written by cluster.create."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

from deepopsctl.cluster.builder import Draft, DraftNode, NodeEntry
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.content import components
from deepopsctl.gpus.gres import describe_gpus
from deepopsctl.gpus.notation import parse_gpus
from deepopsctl.gpus.spec import join_groups
from deepopsctl.imports.read import add_addresses, read_nodes
from deepopsctl.model.cluster import Cluster, Gpus, Role
from deepopsctl.text import values
from deepopsctl.text.node_sets import expand, fold_in_order, shorten
from deepopsctl.text.problems import Problems, RefusedError

T = TypeVar("T")

ROLE_OPTIONS = {
    Role.CONTROLLER: "--controller",
    Role.COMPUTE: "--compute",
    Role.LOGIN: "--login",
    Role.MONITORING: "--monitoring",
    Role.NFS_SERVER: "--nfs-server",
}


@dataclass(frozen=True, slots=True)
class InitRequest:
    """The options of `init`; `source` is the --from file or directory, or `stdin` its open stream."""

    directory: Path
    controller: tuple[str, ...] = ()
    compute: tuple[str, ...] = ()
    login: tuple[str, ...] = ()
    monitoring: tuple[str, ...] = ()
    nfs_server: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    source: Path | None = None
    addresses: Path | None = None
    stdin: BinaryIO | None = None
    name: str = ""
    user: str = ""
    port: str = ""
    ssh_key: str = ""
    jump_host: str = ""

    @property
    def expressions(self) -> Iterator[tuple[Role, str]]:
        """The node expressions of the role options, with their roles."""
        for role in ROLE_OPTIONS:
            for expression in getattr(self, role.value):
                yield role, expression


@dataclass(frozen=True, slots=True)
class InitResult:
    """The cluster, the names of the node list without a role, and the other imported content."""

    cluster: Cluster
    left_out: tuple[str, ...]
    carryover: Carryover


def read_request(request: InitRequest) -> InitResult:
    """The cluster of a request; an InputError reports everything wrong with it."""
    problems = Problems()
    groups = _chosen_groups(request.group, problems)
    draft = read_nodes(request.source, request.stdin, problems, groups)
    draft.incomplete = draft.incomplete or len(groups) < len(request.group)
    if draft.unknown_groups and not any(request.expressions):
        _refuse_groups(draft)
    for role, expression in request.expressions:
        _add_expression(draft, role, expression)
    left_out = _give_roles(draft, compute_is_named=bool(request.compute))
    add_addresses(draft, request.addresses)
    _add_gpus(draft, request.gpus)
    _set_access(draft, request)
    cluster = draft.finish()
    if cluster.components is None:
        cluster = replace(cluster, components=default_components(cluster, draft.carryover))
    return InitResult(cluster, left_out, draft.carryover)


def default_components(cluster: Cluster, carryover: Carryover) -> tuple[str, ...]:
    """The components of a new cluster whose node list has none: with monitoring, unless it is switched off."""
    settings = {**carryover.direct_settings, **carryover.settings}
    wanted = {
        "nvidia": any(node.gpus for node in cluster.nodes),
        "storage": cluster.manages_storage,
        "slurm": True,
        "monitoring": settings.get("monitoring_enabled", True) is not False,
    }
    return tuple(name for name in components() if wanted.get(name))


def unknown_groups(source: Path) -> Mapping[str, int]:
    """Groups of an inventory with their number of hosts, if no group defines a role."""
    return read_nodes(source, None, Problems()).unknown_groups


def _chosen_groups(texts: tuple[str, ...], problems: Problems) -> dict[str, Role]:
    """ROLE=GROUP of the options, as group -> role."""
    group_roles: dict[str, Role] = {}
    for text in texts:
        role, _, group = text.partition("=")
        if not group:
            problems.add("--group", f"{shorten(text)!r} is not a ROLE=GROUP", "write --group compute=workers")
            continue
        try:
            group_roles[group] = values.parse_role(role)
        except RefusedError as refusal:
            problems.refuse("--group", "", refusal)
    return group_roles


def _refuse_groups(draft: Draft) -> None:
    listed = ", ".join(f"{name} ({count})" for name, count in draft.unknown_groups.items())
    draft.problems.add(
        draft.source, f"no group defines which hosts are Slurm's controllers or compute nodes; groups: {listed}",
        "assign roles: --group controller=GROUP --group compute=GROUP (also login, dbd, monitoring, nfs_server)",
    )  # fmt: skip
    draft.incomplete = True


def _add_expression(draft: Draft, role: Role, text: str) -> None:
    """One NAMES or NAMES=ADDRESSES of an option."""
    option = ROLE_OPTIONS[role]
    names, equals, addresses = text.partition("=")
    try:
        values.check_template(text)
    except RefusedError as refusal:
        draft.refuse(option, refusal)
        return
    if equals and not addresses.strip():
        draft.refuse(option, RefusedError(f"{shorten(text)}: no address after =", "write NAMES=ADDRESSES or NAMES"))
        return
    draft.merge(NodeEntry(where=option, names=names, addresses=addresses, roles=frozenset({role})))


def _give_roles(draft: Draft, *, compute_is_named: bool) -> tuple[str, ...]:
    """Nodes without a role become compute nodes; with --compute they are left out."""
    without = [node for node in draft.nodes.values() if not node.roles]
    if not compute_is_named:
        for node in without:
            node.roles = frozenset({Role.COMPUTE})
        return ()
    for node in without:
        del draft.nodes[node.name.lower()]
    return tuple(node.name for node in without)


def _add_gpus(draft: Draft, texts: tuple[str, ...]) -> None:
    """`NODESET:TYPE:COUNT` for these nodes, `TYPE:COUNT` for the compute nodes that still have none.

    Several options for one node are several GPU types.
    """
    general: list[Gpus] = []
    by_node: dict[str, list[Gpus]] = {}
    for text in texts:
        try:
            nodeset, gpus = _parse_gpus_option(text)
            for gpu_list in _gpu_lists_of(draft, nodeset, by_node) if nodeset else [general]:
                gpu_list.append(gpus)
        except RefusedError as refusal:
            draft.problems.refuse("--gpus", "", refusal)
    for name, node in draft.nodes.items():
        if name in by_node:
            _set_gpus(draft, node, by_node[name])
        elif general and not node.gpus and Role.COMPUTE in node.roles:
            _set_gpus(draft, node, general)


def _parse_gpus_option(text: str) -> tuple[str, Gpus]:
    parts = values.check_template(text).split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise RefusedError(f"{shorten(text)!r} is not [NODESET:]TYPE:COUNT", "write h100:8 or gpu[01-02]:a100:4")
    return ("" if len(parts) == 2 else parts[0]), parse_gpus(parts[-2], parts[-1])


def _gpu_lists_of(draft: Draft, nodeset: str, by_node: dict[str, list[Gpus]]) -> list[list[Gpus]]:
    """The GPUs read so far, for each node of a node set."""
    names = [name.lower() for name in expand(nodeset)]
    unknown = [name for name in names if name not in draft.nodes]
    if unknown and not draft.incomplete:
        raise RefusedError(
            f"{shorten(nodeset)}: no node {shorten(fold_in_order(unknown))}",
            "name only nodes of this cluster",
        )
    if len(set(names)) < len(names):
        raise RefusedError(f"{shorten(nodeset)} names a node twice", "name every node once")
    return [by_node.setdefault(name, []) for name in names]


def _set_gpus(draft: Draft, node: DraftNode, gpu_list: Sequence[Gpus]) -> None:
    try:
        gpus = join_groups(gpu_list)
        _check_agreement(node, gpus)
        node.gpus = gpus
    except RefusedError as refusal:
        draft.problems.refuse("--gpus", "", refusal)


def _check_agreement(node: DraftNode, gpus: Gpus) -> None:
    if node.gpus and node.gpus != gpus:
        raise RefusedError(f"{node.name} has {describe_gpus(node.gpus)} at {node.where}", "make both the same")


def _set_access(draft: Draft, request: InitRequest) -> None:
    def checked(option: str, check: Callable[[str], T], text: str, instead: T) -> T:
        try:
            return check(text) if text else instead
        except RefusedError as refusal:
            draft.problems.refuse(option, "", refusal)
            return instead

    access = draft.access
    if request.source and access.key and not access.key.startswith(("/", "~")):
        # a relative key path is relative to the source file, not to the new directory
        access = replace(access, key=str((request.source.parent / access.key).absolute()))
    draft.access = replace(
        access,
        user=checked("--user", values.check_user, request.user, access.user),
        port=checked("--port", values.parse_port, request.port, access.port),
        key=checked("--ssh-key", _existing_key, request.ssh_key, access.key),
        jump_host=checked("--jump-host", values.check_jump_host, request.jump_host, access.jump_host),
    )
    name = draft.name or ("" if draft.refused_name else _name_from(request.directory))
    draft.name = checked("--name", values.check_cluster_name, request.name, name)


def _existing_key(text: str) -> str:
    path = Path(values.check_key(text)).expanduser()
    if not path.is_file():
        raise RefusedError(f"{shorten(text)}: no such file", "give the path of a private key that exists")
    # absolute: the option is relative to the current directory, cluster.yml is not
    return values.check_key(str(path.absolute()))


def _name_from(directory: Path) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", directory.expanduser().resolve().name.lower()).strip("-_")
    return name[:40] or "cluster"

"""Properties of new nodes: from options, or copied from a similar node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from deepopsctl.cluster.editor import NewNodes
from deepopsctl.cluster.selection import select_nodes
from deepopsctl.errors import InputError
from deepopsctl.gpus.gres import describe_gpus
from deepopsctl.gpus.notation import parse_gpus
from deepopsctl.model.cluster import Cluster, Gpus, Node, Role
from deepopsctl.text import values
from deepopsctl.text.node_sets import expand, pair
from deepopsctl.text.problems import RefusedError


@dataclass(frozen=True, slots=True)
class AddRequest:
    """The options of `node add`. None: copy from a similar node; `gpus` of `none` is not a GPUs."""

    names: str
    gpus: str | None = None
    features: str | None = None
    like: str = ""
    partitions: tuple[str, ...] = ()


def parse_hosts(text: str) -> tuple[tuple[str, str], ...]:
    """Parse NAMES or NAMES=ADDRESSES into (name, address) pairs; the address is '' without one."""
    names, equals, addresses = text.partition("=")
    try:
        values.check_template(text)
        hosts = pair(names, addresses) if equals else tuple((name, "") for name in expand(names))
        for name, address in hosts:
            values.check_name(name)
            if address:
                values.check_address(address)
    except RefusedError as refusal:
        raise InputError.single("NAMES", refusal.message, refusal.hint) from refusal
    if len({name for name, _ in hosts}) < len(hosts):
        raise InputError.single("NAMES", f"{text} names a node twice", "name every node once")
    return hosts


def resolve_new_nodes(cluster: Cluster, request: AddRequest, hosts: Sequence[tuple[str, str]]) -> NewNodes:
    """The new nodes with their roles, GPUs, features and partitions."""
    sibling = _sibling(cluster, request, hosts)
    model = _model(sibling, request)
    like = sibling.name if sibling else ""
    wanted = _partitions(cluster, request, sibling, model)
    return NewNodes(tuple(hosts), model, like, wanted)


def describe(new: NewNodes) -> str:
    """`like gpu01: compute, a100:2, partitions gpu, long`."""
    model = new.model
    parts = [role.value for role in Role if role in model.roles]
    parts += [describe_gpus(model.gpus)] if model.gpus else []
    parts += [f"features {', '.join(model.features)}"] if model.features else []
    if new.partitions:
        parts.append(f"partition{'s' * (len(new.partitions) > 1)} {', '.join(new.partitions)}")
    return (f"like {new.like}: " if new.like else "") + ", ".join(parts)


def split_known(
    cluster: Cluster, hosts: Iterable[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(hosts that are not in the cluster, hosts that are); a different address is refused."""
    known = {node.name: node for node in cluster.nodes}
    fresh, there = [], []
    for name, address in hosts:
        if name not in known:
            fresh.append((name, address))
            continue
        has = known[name].address
        if address and values.address_key(address) != values.address_key(has):
            raise InputError.single(
                "NAMES",
                f"{name} is in the cluster with {f'the address {has}' if has else 'no address'}",
                f"to replace the node: deepopsctl node replace {name} --address {address}",
            )
        there.append((name, has))
    return fresh, there


def _sibling(cluster: Cluster, request: AddRequest, hosts: Sequence[tuple[str, str]]) -> Node | None:
    """The node to copy from: the one named by --like, else the last one with a similar name."""
    if request.like:
        (sibling, *more) = select_nodes([request.like], cluster, "--like")
        if more:
            raise InputError.single("--like", f"{request.like} are several nodes", "name one")
        return sibling
    stems = {_stem(name) for name, _ in hosts}
    similar = [node for node in cluster.compute if _stem(node.name) in stems]
    return similar[-1] if similar else None


def _model(sibling: Node | None, request: AddRequest) -> Node:
    model = sibling or Node("", frozenset({Role.COMPUTE}))
    if sibling and {Role.CONTROLLER, Role.DBD} & sibling.roles:
        raise InputError.single("--like", f"{sibling.name} is a controller", "controllers are added in cluster.yml")
    try:
        if request.gpus is not None:
            model = replace(model, gpus=_gpus(request.gpus))
        if request.features is not None:
            words = [word.strip() for word in request.features.split(",") if word.strip()]
            model = replace(model, features=tuple(values.check_feature(word) for word in words))
    except RefusedError as refusal:
        raise InputError.single("--gpus or --features", refusal.message, refusal.hint) from refusal
    return replace(model, name="", address="")


def _gpus(text: str) -> Gpus | None:
    if text.lower() == "none":
        return None
    gpu_type, colon, count = text.rpartition(":")
    if not colon or not gpu_type:
        raise RefusedError(f"{text!r} is not a valid TYPE:COUNT", "write h100:8, or none")
    return parse_gpus(gpu_type, count)


def _partitions(cluster: Cluster, request: AddRequest, sibling: Node | None, model: Node) -> tuple[str, ...]:
    """The partitions of the new nodes: from options, or the sibling's; partitions of `all` include them anyway."""
    known = [partition.name for partition in cluster.partitions]
    unknown = [name for name in request.partitions if name not in known]
    if unknown:
        raise InputError.single(
            "--partition", f"there is no partition {', '.join(unknown)}", f"there are: {', '.join(known)}"
        )
    if request.partitions or Role.COMPUTE not in model.roles:
        return request.partitions
    everything = frozenset(node.name for node in cluster.compute)
    partitions = [
        p.name for p in cluster.partitions if (sibling and sibling.name in p.nodes) or everything <= set(p.nodes)
    ]
    if not partitions:
        raise InputError.single(
            "--partition",
            "the partition of the new nodes is unknown",
            f"use --partition; there are: {', '.join(known)}",
        )
    return tuple(partitions)


def _stem(name: str) -> str:
    return re.sub(r"\d+", "#", name)

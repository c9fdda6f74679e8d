"""Which nodes a command line names: `--limit`, NODES, and other options with node sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from deepopsctl.cluster.inventory import group_members
from deepopsctl.errors import InputError, Problem
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.text.node_sets import expand, fold, fold_in_order
from deepopsctl.text.problems import RefusedError

WHERE = "NODES"
# `!gpu03`, `&slurm_login`, `gpu*`, `~gpu\d+`, `@file`, `a:b`, `group[0]`: Ansible's own language
_PATTERN = re.compile(r"[!&~@*?:]|^\w+\[\d*(:\d*)?\]$")


@dataclass(frozen=True, slots=True)
class Limit:
    """The nodes of a run. `hosts` is None if only Ansible can resolve it; `text` is Ansible's pattern."""

    text: str
    hosts: tuple[str, ...] | None


def resolve_limit(text: str, cluster: Cluster) -> Limit:
    """Node sets are expanded, group names stay; unknown names are refused."""
    names = {node.name: None for node in cluster.nodes}
    if not text.strip():
        return Limit("", tuple(names))
    groups = {**group_members(cluster), "all": tuple(names), "slurm_cluster": tuple(names)}
    patterns: list[str] = []
    hosts: dict[str, None] | None = {}
    for piece in _pieces(text):
        if piece in groups:
            selected: tuple[str, ...] | None = groups[piece]
        else:
            selected = None if _PATTERN.search(piece) else _nodes(piece, names, groups)
        patterns += (piece,) if piece in groups or selected is None else selected
        hosts = None if hosts is None or selected is None else hosts | dict.fromkeys(selected)
    if hosts is not None and not hosts:
        raise InputError.single("--limit", f"{text} has no nodes", f"nodes: {fold(names)}")
    return Limit(",".join(patterns), None if hosts is None else tuple(name for name in names if name in hosts))


def _pieces(text: str) -> list[str]:
    """Parts between the commas that stand outside brackets."""
    return [piece.strip() for piece in re.split(r",(?![^\[]*\])", text) if piece.strip()]


def _nodes(piece: str, names: dict[str, None], groups: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    try:
        expanded = expand(piece)
    except ValueError as error:
        raise InputError.single("--limit", str(error), "give node sets such as gpu[01-04], or groups") from error
    unknown = [name for name in expanded if name not in names]
    if unknown:
        near = _nearest(unknown, [*groups, *names])
        meant = f"did you mean {', '.join(near)}? " if near else ""
        known = f"{meant}nodes: {fold(names)}; groups: {', '.join(sorted(groups))}"
        raise InputError.single("--limit", f"the cluster has no node or group {fold(unknown)}", known)
    return expanded


def _nearest(unknown: Iterable[str], known: Iterable[str]) -> list[str]:
    """The known name that is nearest to each unknown one, where one is near."""
    names = list(known)
    return list(dict.fromkeys(match for name in unknown for match in get_close_matches(name, names, n=1)))


def select_nodes(words: Sequence[str], cluster: Cluster) -> tuple[Node, ...]:
    """The named nodes, each once; unknown names are refused."""
    known = {node.name: node for node in cluster.nodes}
    wanted: dict[str, None] = {}
    for word in words:
        try:
            wanted |= dict.fromkeys(expand(word))
        except ValueError as error:
            raise InputError.single(WHERE, str(error), "give node sets such as gpu[01-04]") from error
    unknown = [name for name in wanted if name not in known]
    if unknown:
        near = _nearest(unknown, known)
        meant = f"did you mean {fold(near)}? " if near else ""
        hint = f"{meant}nodes: {fold(known)}"
        raise InputError.single(WHERE, f"the cluster has no node {fold(unknown)}", hint)
    return tuple(known[name] for name in wanted)


def select_compute(words: Sequence[str], cluster: Cluster) -> tuple[str, ...]:
    """Like `select_nodes`, for compute nodes only."""
    nodes = select_nodes(words, cluster)
    other = [node.name for node in nodes if Role.COMPUTE not in node.roles]
    if other:
        hint = f"compute nodes: {fold(node.name for node in cluster.compute)}"
        raise InputError([Problem(WHERE, f"{fold(other)}: no compute node, so there is nothing to drain", hint)])
    return tuple(node.name for node in nodes)


def select(cluster: Cluster, text: str, option: str) -> tuple[Node, ...]:
    """The nodes of a node set or groups (`slurm_compute`), in the order of cluster.yml; all for an empty text."""
    if not text:
        return cluster.nodes
    names = select_names(cluster, text, option)
    return tuple(node for node in cluster.nodes if node.name in names)


def select_names(cluster: Cluster, text: str, option: str, *others: str) -> frozenset[str]:
    """The names of a node set, none for an empty text; each is a node, a group or one of `others`."""
    if not text:
        return frozenset()
    try:
        words = expand(text)
    except RefusedError as refusal:
        raise InputError.single(option, refusal.message, refusal.hint) from refusal
    groups = {**group_members(cluster), "slurm_cluster": tuple(node.name for node in cluster.nodes)}
    names = [name for word in words for name in groups.get(word, (word,))]
    known = {*(node.name for node in cluster.nodes), *others}
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        raise InputError.single(
            option,
            f"the cluster has no {fold_in_order(unknown)}",
            f"its nodes: {fold_in_order(node.name for node in cluster.nodes)}",
        )
    return frozenset(names)

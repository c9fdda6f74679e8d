"""Which nodes a command line names: NODES, `--limit`, and every other option that takes node sets.

A node set is the same everywhere: names as Slurm writes them (`gpu[01-04],ctl1`) and groups of the inventory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from deepopsctl.cluster.inventory import group_members
from deepopsctl.errors import InputError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.text.node_sets import expand, fold
from deepopsctl.text.problems import RefusedError

# `!gpu03`, `&slurm_login`, `gpu*`, `~gpu\d+`, `@file`, `a:b`: Ansible's own language
_PATTERN = re.compile(r"[!&~@*?:]")
# and `group[0]`; `gpu[01]` is a node set
_ITEM = re.compile(r"(\w+)\[\d+\]")


@dataclass(frozen=True, slots=True)
class Limit:
    """The nodes of a run. `hosts` is None if only Ansible can resolve it; `text` is Ansible's pattern."""

    text: str
    hosts: tuple[str, ...] | None


def select_nodes(words: Sequence[str], cluster: Cluster, option: str = "NODES") -> tuple[Node, ...]:
    """The named nodes, each once, in the order of cluster.yml; unknown names and empty groups are refused."""
    names = select_names(words, cluster, option)
    return tuple(node for node in cluster.nodes if node.name in names)


def select_names(words: Sequence[str], cluster: Cluster, option: str, others: Sequence[str] = ()) -> frozenset[str]:
    """Like `select_nodes`, for an option that accepts `others` too, which are not nodes."""
    selection = _Selection(cluster, option, others)
    for word in words:
        for piece in _pieces(word):
            selection.add(piece)
    selection.raise_if_unknown()
    if words and not selection.names:
        raise selection.empty(",".join(words))
    return frozenset(selection.names)


def select_compute(words: Sequence[str], cluster: Cluster) -> tuple[str, ...]:
    """The names of the named nodes; others than compute nodes are refused."""
    nodes = select_nodes(words, cluster)
    other = [node.name for node in nodes if Role.COMPUTE not in node.roles]
    if other:
        hint = f"compute nodes: {fold(node.name for node in cluster.compute)}"
        raise InputError.single("NODES", f"{fold(other)}: no compute node, so there is nothing to drain", hint)
    return tuple(node.name for node in nodes)


def resolve_limit(text: str, cluster: Cluster) -> Limit:
    """`--limit` of a run: node sets are expanded, groups and Ansible's patterns stay; empty for all nodes."""
    if not text.strip():
        return Limit("", tuple(node.name for node in cluster.nodes))
    selection = _Selection(cluster, "--limit")
    patterns: list[str] = []
    only_ansible = False
    for piece in _pieces(text):
        item = _ITEM.fullmatch(piece)
        if piece not in selection.groups and (_PATTERN.search(piece) or (item and item[1] in selection.groups)):
            only_ansible = True
            patterns.append(piece)
        else:
            names = selection.add(piece)
            patterns += [piece] if piece in selection.groups else names
    selection.raise_if_unknown()
    if only_ansible:
        return Limit(",".join(patterns), None)
    if not selection.names:
        raise selection.empty(text)
    return Limit(",".join(patterns), tuple(name for name in selection.nodes if name in selection.names))


def _pieces(text: str) -> list[str]:
    """Parts between the commas that stand outside brackets."""
    return [piece.strip() for piece in re.split(r",(?![^\[]*\])", text) if piece.strip()]


class _Selection:
    """Collects the nodes of node sets and groups, and the names that the cluster does not have."""

    def __init__(self, cluster: Cluster, option: str, others: Sequence[str] = ()) -> None:
        self.option = option
        self.nodes = tuple(node.name for node in cluster.nodes)
        self.groups = {**group_members(cluster), "all": self.nodes, "slurm_cluster": self.nodes}
        self.names: set[str] = set()
        self._single = frozenset((*self.nodes, *others))
        self._unknown: list[str] = []

    def add(self, piece: str) -> tuple[str, ...]:
        """Add a node set or a group; returns its names."""
        try:
            names = self.groups[piece] if piece in self.groups else expand(piece)
        except RefusedError as refusal:
            raise InputError.single(self.option, refusal.message, refusal.hint) from refusal
        self.names.update(names)
        self._unknown += [name for name in names if name not in self._single]
        return names

    def raise_if_unknown(self) -> None:
        """Refuse names that the cluster does not have, with the nearest that it has."""
        if self._unknown:
            every = [*self.groups, *sorted(self._single)]
            near = {match for name in self._unknown for match in get_close_matches(name, every, n=1)}
            hint = f"did you mean {fold(near)}? " if near else ""
            hint += f"nodes: {fold(self.nodes)}; groups: {', '.join(sorted(self.groups))}"
            message = f"the cluster has no node or group {fold(self._unknown)}"
            raise InputError.single(self.option, message, hint)

    def empty(self, text: str) -> InputError:
        """The error for groups without nodes."""
        return InputError.single(self.option, f"{text} has no nodes", f"nodes: {fold(self.nodes)}")

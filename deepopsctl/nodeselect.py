"""NODES on a command line: node sets, turned into nodes of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from deepopsctl.errors import InputError, Problem
from deepopsctl.model import Cluster, Node, Role
from deepopsctl.nodelist import expand, fold

WHERE = "NODES"


def select_nodes(words: Sequence[str], cluster: Cluster) -> tuple[Node, ...]:
    """The nodes that are named, each once; every name that the cluster does not have is refused."""
    known = {node.name: node for node in cluster.nodes}
    wanted: dict[str, None] = {}
    for word in words:
        try:
            wanted |= dict.fromkeys(expand(word))
        except ValueError as error:
            raise InputError.single(WHERE, str(error), "give node sets such as gpu[01-04]") from error
    unknown = [name for name in wanted if name not in known]
    if unknown:
        near = list(dict.fromkeys(found for name in unknown for found in get_close_matches(name, known, n=1)))
        meant = f"did you mean {fold(near)}? " if near else ""
        hint = f"{meant}nodes: {fold(known)}"
        raise InputError.single(WHERE, f"the cluster has no node {fold(unknown)}", hint)
    return tuple(known[name] for name in wanted)


def select_compute(words: Sequence[str], cluster: Cluster) -> tuple[str, ...]:
    """The same, for names that must be compute nodes."""
    nodes = select_nodes(words, cluster)
    other = [node.name for node in nodes if Role.COMPUTE not in node.roles]
    if other:
        hint = f"compute nodes: {fold(node.name for node in cluster.compute)}"
        raise InputError([Problem(WHERE, f"{fold(other)}: no compute node, so there is nothing to drain", hint)])
    return tuple(node.name for node in nodes)

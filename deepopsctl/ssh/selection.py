"""Which of the cluster's nodes an option means."""

from __future__ import annotations

from deepopsctl.errors import InputError
from deepopsctl.inventory import group_members
from deepopsctl.model import Cluster, Node
from deepopsctl.nodelist import expand, fold_in_order
from deepopsctl.problems import RefusedError


def select(cluster: Cluster, text: str, option: str) -> tuple[Node, ...]:
    """The nodes of a node set or of groups (`slurm_compute`), in the order of cluster.yml; all for an empty text."""
    if not text:
        return cluster.nodes
    names = select_names(cluster, text, option)
    return tuple(node for node in cluster.nodes if node.name in names)


def select_names(cluster: Cluster, text: str, option: str, *others: str) -> frozenset[str]:
    """The names a node set stands for, none for an empty text; each a node, a group or one of the others."""
    if not text:
        return frozenset()
    try:
        given = expand(text)
    except RefusedError as refusal:
        raise InputError.single(option, refusal.message, refusal.hint) from refusal
    groups = {**group_members(cluster), "slurm_cluster": tuple(node.name for node in cluster.nodes)}
    names = [name for word in given for name in groups.get(word, (word,))]
    known = {*(node.name for node in cluster.nodes), *others}
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        raise InputError.single(
            option,
            f"the cluster has no {fold_in_order(unknown)}",
            f"its nodes: {fold_in_order(node.name for node in cluster.nodes)}",
        )
    return frozenset(names)

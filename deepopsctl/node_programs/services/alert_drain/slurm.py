"""Query and update nodes."""

from __future__ import annotations

from ..._shared import node_states, slurm_client
from .decide import Node


def nodes() -> dict[str, Node]:
    """All nodes, by name. Raises NoAnswerError."""
    return {name: _node(entry) for name, entry in slurm_client.nodes().items()}


def drain(name: str, reason: str) -> None:
    """Jobs that run continue; none starts."""
    slurm_client.require(slurm_client.update("node", [name], "state=drain", "reason=" + reason))


def resume(name: str) -> bool:
    """Resume a node that is drained by an alert; False if it no longer is."""
    node = nodes().get(name)
    if node is None or not node.drained_by_alert:
        return False
    # not resume: a node that is down for another reason stays down
    slurm_client.require(slurm_client.update("node", [name], "state=undrain"))
    return True


def _node(entry: slurm_client.Node) -> Node:
    flags = node_states.flags(entry["state"])
    # whether the alert of an unreachable node has ended is not known
    is_healthy = not flags & node_states.NOT_MEASURED
    return Node(entry["name"], "DRAIN" in flags, entry["reason"], is_healthy)

"""Query and update nodes by scontrol. Its text output is the same from 22.05 on, its JSON output is not."""

from __future__ import annotations

import re
from typing import Any

from ..._shared import command, slurm_output
from .decide import Node

# above Slurm's own MessageTimeout (10 s), to get scontrol's error message
PATIENCE_S = 30
# Whether the alert of an unreachable node has ended is unknown.
_UNWELL = frozenset((
    "DOWN", "FAIL", "ERROR", "UNKNOWN", "INVAL", "INVALID_REG", "NOT_RESPONDING",
    "REBOOT_ISSUED", "POWERING_DOWN", "POWERED_DOWN", "POWERING_UP",
))  # fmt: skip


class SlurmError(Exception):
    """slurmctld does not answer, or refuses."""


def nodes() -> dict[str, Node]:
    """All nodes, by name."""
    return {entry["name"]: _node(entry) for entry in slurm_output.nodes(_scontrol("show", "node"))}


def drain(name: str, reason: str) -> None:
    """Jobs that run go on; none starts."""
    _scontrol("update", "nodename=" + name, "state=drain", "reason=" + reason)


def resume(name: str) -> bool:
    """Resume a node that is drained by an alert; False if it no longer is."""
    node = nodes().get(name)
    if node is None or not node.drained_by_alert:
        return False
    # not resume: a node that is down for another reason stays down
    _scontrol("update", "nodename=" + name, "state=undrain")
    return True


def _node(entry: dict[str, Any]) -> Node:
    state = str(entry["state"])
    words = set(re.findall("[A-Z_]+", state))
    # `*`: slurmd does not answer
    is_healthy = "*" not in state and not words & _UNWELL
    return Node(str(entry["name"]), "DRAIN" in words, str(entry["reason"]), is_healthy)


def _scontrol(*words: str) -> str:
    result = command.run_merged(["scontrol", "--oneliner", *words], PATIENCE_S)
    if not result.ok:
        raise SlurmError(f"scontrol {' '.join(words)}: {' '.join(result.message.split())}")
    return result.output

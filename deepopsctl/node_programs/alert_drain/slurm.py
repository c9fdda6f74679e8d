"""Query and update nodes by scontrol. Its text output is the same from 22.05 on, its JSON output is not."""

from __future__ import annotations

import re
from typing import Dict

from .._shared import command
from .decide import Node

# above Slurm's own MessageTimeout (10 s), to get scontrol's error message
PATIENCE_S = 30
_REASON = re.compile(r"\sReason=(.*?) \[[^@\[\]]*@[^\[\]]*\](?=\s|$)")
_STATE = re.compile(r"\sState=(\S+)")
_NAME = re.compile(r"NodeName=(\S+)")
# Whether the alert of an unreachable node has ended is unknown.
_UNWELL = frozenset((
    "DOWN", "FAIL", "ERROR", "UNKNOWN", "INVAL", "INVALID_REG", "NOT_RESPONDING",
    "REBOOT_ISSUED", "POWERING_DOWN", "POWERED_DOWN", "POWERING_UP",
))  # fmt: skip


class SlurmError(Exception):
    """slurmctld does not answer, or refuses."""


def nodes() -> Dict[str, Node]:
    """All nodes, by name."""
    nodes_in_order = (_node(line) for line in _scontrol("show", "node").splitlines() if line.startswith("NodeName="))
    return {node.name: node for node in nodes_in_order}


def drain(name: str, reason: str) -> None:
    """Jobs that run go on; none starts."""
    _scontrol("update", "nodename=" + name, "state=drain", "reason=" + reason)


def resume(name: str) -> bool:
    """Resume a node that is drained by an alert; False if it no longer is."""
    if not nodes()[name].drained_by_alert:
        return False
    # not resume: a node that is down for another reason stays down
    _scontrol("update", "nodename=" + name, "state=undrain")
    return True


def _node(line: str) -> Node:
    reason = _REASON.search(line)
    # a reason is free text: nothing in it may pass for a field
    fields = line[: reason.start()] + line[reason.end() :] if reason else line
    name, state = _NAME.match(fields), _STATE.search(fields)
    if not name or not state:
        raise SlurmError("unexpected output of scontrol show node: {}".format(line[:200]))
    words = set(re.findall("[A-Z_]+", state[1]))
    # `*`: slurmd does not answer
    is_healthy = "*" not in state[1] and not words & _UNWELL
    return Node(name[1], "DRAIN" in words, reason[1] if reason else "", is_healthy)


def _scontrol(*words: str) -> str:
    result = command.run_merged(["scontrol", "--oneliner", *words], PATIENCE_S)
    if not result.ok:
        raise SlurmError("scontrol {}: {}".format(" ".join(words), " ".join(result.message.split())))
    return result.output

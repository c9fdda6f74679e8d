"""The states of nodes and jobs in Slurm, and how deepopsctl marks what it does to nodes. Python 3.8."""

from __future__ import annotations

import re

# deepopsctl ends its own drains, and nobody else's
PREFIX = "deepopsctl: "
# of node add, remove and replace: these end no other drains
NODE_PREFIX = PREFIX + "node "
# of node reboot; slurmctld adds to it what has become of the reboot
REBOOT_PREFIX = NODE_PREFIX + "reboot"
# of upgrade os and upgrade nvidia, followed by the command
UPGRADE_PREFIX = NODE_PREFIX + "upgrade "
# of the program that drains nodes by alerts
ALERT_PREFIX = PREFIX + "alert "
# the reservation in which new nodes are validated
RESERVATION = "deepopsctl-trial"
# states of a job that has nodes
ON_NODES = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"})
REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
_FAULTS = frozenset({"DOWN", "FAIL", "ERROR", "UNKNOWN", "INVAL", "INVALID_REG", "NOT_RESPONDING"})


def drain_reason(text: str) -> str:
    """The reason as Slurm gets it; scontrol takes a double quote at its end for its own."""
    return PREFIX + " ".join(text.replace('"', "'").split())


def flags(state: str) -> frozenset[str]:
    """The parts of a node's state (`IDLE+DRAIN`, `DOWN*`); a trailing `*` counts as NOT_RESPONDING."""
    parts = frozenset(re.findall("[A-Z_]+", state))
    return parts | {"NOT_RESPONDING"} if "*" in state else parts


def is_faulty(state: str) -> bool:
    """Whether Slurm itself regards the node as faulty or unreachable."""
    parts = flags(state)
    # Slurm 22.05 sets a drained node that was rebooted down as well, under the drain's reason
    return bool(parts & _FAULTS - ({"DOWN"} if "DRAIN" in parts else set()))

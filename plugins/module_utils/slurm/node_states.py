"""The states of nodes and jobs in Slurm, and how deepopsctl marks what it does to nodes. Python 3.8."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# deepopsctl ends its own drains, and no others
PREFIX = "deepopsctl: "
# of node add, remove and replace: these end no other drains
NODE_PREFIX = PREFIX + "node "
# of node reboot; slurmctld adds to it what has become of the reboot
REBOOT_PREFIX = NODE_PREFIX + "reboot"
# of upgrade os and upgrade nvidia, followed by the command
UPGRADE_PREFIX = NODE_PREFIX + "upgrade "
# of the program that drains nodes by alerts
ALERT_PREFIX = PREFIX + "alert "
# slurmctld drains nodes as this user; an administrator's drain has their own name, or root's
SLURM_USER = "slurm"
# the reservation in which new nodes are validated
RESERVATION = "deepopsctl-trial"
# states of a job that has nodes
ON_NODES = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"})

# --- What the words of a node's state mean for its jobs, as `scontrol show node` prints them (Slurm 22.05 to 26.05).
# Each set is for one question; a word is in it for the reason above it.

REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
# no word of its slurmd, or none since the start of slurmctld: what happens on the node is not known
SILENT = frozenset({"NOT_RESPONDING", "UNKNOWN"})
# not there, and nothing is wrong: Slurm ignores what is asked of such a node
SWITCHED_OFF = frozenset({"FUTURE", "POWER_DOWN", "POWERING_DOWN", "POWERED_DOWN"})
STARTING = frozenset({"POWER_UP", "POWERING_UP"})
# its slurmd has registered with less than slurm.conf says of it; the first is sinfo's word
INVALID = frozenset({"INVAL", "INVALID_REG"})
_NOT_AS_CONFIGURED = SILENT | INVALID | {"DOWN"}
# Slurm regards it as faulty. FAIL and ERROR do not end when slurmd registers, only by an administrator
FAULTS = _NOT_AS_CONFIGURED | {"FAIL", "ERROR"}
# slurmd has to register first; without FAIL and ERROR, which say nothing about that
UNREGISTERED = _NOT_AS_CONFIGURED | SWITCHED_OFF
# does not run jobs, also where it is not drained
NOT_SERVING = FAULTS | SWITCHED_OFF
# out of service, by an administrator or by Slurm; the last two are sinfo's words
DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})
OUT_OF_SERVICE = DRAINED | {"DOWN"}
# no job starts there, however many others end
NO_JOBS = NOT_SERVING | DRAINED
# in a reservation for maintenance
MAINTENANCE = frozenset({"MAINT", "MAINTENANCE"})
# jobs start there later, without an administrator
JOBS_LATER = REBOOTING | STARTING | MAINTENANCE | {"RESERVED"}
# no measurement there says that the node is well again; one whose reboot is only requested still runs
NOT_MEASURED = NOT_SERVING | STARTING | {"REBOOT_ISSUED"}
# can't be tested after its reboot, which leaves it DOWN until it has been; UNKNOWN passes in a moment
NOT_TESTABLE = FAULTS - {"DOWN", "UNKNOWN"}
# sinfo's long words begin so where a job that is submitted now gets no GPU: also those of a plan or a reservation
NO_FREE_GPUS = ("down", "drain", "fail", "maint", "unk", "power", "reboot", "inval", "block", "plan", "reserv")


def drain_reason(text: str) -> str:
    """The reason as Slurm gets it; scontrol takes a double quote at its end for its own."""
    return PREFIX + " ".join(text.replace('"', "'").split())


def flags(state: str) -> frozenset[str]:
    """The parts of a node's state (`IDLE+DRAIN`, `DOWN*`); a trailing `*` counts as NOT_RESPONDING."""
    parts = frozenset(re.findall("[A-Z_]+", state))
    return parts | {"NOT_RESPONDING"} if "*" in state or "NO_RESPOND" in parts else parts


def is_faulty(state: str) -> bool:
    """Whether Slurm itself regards the node as faulty or unreachable."""
    parts = flags(state)
    # Slurm 22.05 sets a drained node that was rebooted down as well, under the drain's reason
    return bool(parts & FAULTS - ({"DOWN"} if "DRAIN" in parts else set()))


def is_out(state: str) -> bool:
    """Whether the node was taken out of service, by anybody."""
    return bool(flags(state) & OUT_OF_SERVICE)


def is_only_down(state: str) -> bool:
    """Registered and DOWN: an administrator set it so, or Slurm after a restart of the node."""
    return flags(state) & UNREGISTERED == {"DOWN"}


def is_empty_and_drained(state: str) -> bool:
    """Whether no job is there and none can start."""
    parts = flags(state)
    # Slurm ends the jobs of a node that is down; one that does not answer has perhaps not heard of it
    empty = "IDLE" in parts or ("DOWN" in parts and "NOT_RESPONDING" not in parts)
    # a node that just ends a job is COMPLETING, besides
    return empty and "DRAIN" in parts and "COMPLETING" not in parts


def is_by_person(reason_user: str) -> bool:
    """Whether an administrator gave the reason of a node's state, and not Slurm itself."""
    return reason_user not in ("", SLURM_USER)


def is_drained_with(node: Mapping[str, Any] | None, reason: str) -> bool:
    """Whether the node is drained for this reason: by the call that gave it, and not again since."""
    return node is not None and "DRAIN" in flags(node["state"]) and node["reason"] == reason

"""How a change of slurm.conf reaches the daemons. Runs on the controller and on the control machine.

Source: slurm.conf(5), "a restart of the daemon is required", Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import hashlib
import re
from enum import IntEnum


class Effect(IntEnum):
    """How a changed key reaches the daemons; the strongest of all changes wins."""

    NONE = 0
    RECONFIGURE = 1
    RESTART_SLURMCTLD = 2
    RESTART_SLURMD = 3
    REFUSED = 4


# Everything not listed here takes effect by `scontrol reconfigure`.
EFFECTS = {
    "ClusterName": Effect.REFUSED,  # slurmctld refuses to start over another cluster's state
    "StateSaveLocation": Effect.REFUSED,  # the jobs' state would be left behind
    **dict.fromkeys(
        (
            "AccountingStorageTRES",
            "AuthAltTypes",
            "AuthInfo",
            "GresTypes",
            "JobCompType",
            "NodeName",
            "PreemptType",
            "PriorityType",
            "SchedulerType",
            "SelectType",
            "SelectTypeParameters",
            "SlurmctldHost",
            "SlurmctldParameters",
            "SlurmctldPort",
            "TopologyPlugin",
        ),
        Effect.RESTART_SLURMCTLD,
    ),
    **dict.fromkeys(
        (
            "JobAcctGatherType",
            "JobContainerType",
            "LaunchParameters",
            "MpiDefault",
            "PluginDir",
            "ProctrackType",
            "PrologFlags",
            "SlurmdPort",
            "SlurmdSpoolDir",
            "SwitchType",
            "TaskPlugin",
        ),
        Effect.RESTART_SLURMD,
    ),
}


def parse_conf(text: str) -> dict[str, str]:
    """Keys of a slurm.conf, in lower case as Slurm reads them in any; lines that may repeat are joined."""
    found: dict[str, str] = {}
    for raw in text.splitlines():
        key, separator, value = raw.partition("#")[0].strip().partition("=")
        key = key.strip().lower()
        if separator and key in ("nodename", "partitionname", "slurmctldhost"):
            found[key] = found.get(key, "") + value.strip() + "\n"
        elif separator:
            found[key] = value.strip()
    return found


def effect_of(old: str, new: str) -> tuple[Effect, list[str]]:
    """How the change from one slurm.conf to another takes effect, and the keys that changed."""
    before, after = parse_conf(old), parse_conf(new)
    changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    effects = {key.lower(): effect for key, effect in EFFECTS.items()}
    strongest = max((effects.get(key, Effect.RECONFIGURE) for key in changed), default=Effect.NONE)
    return strongest, sorted(_spelling(key, f"{new}\n{old}") for key in changed)


def _spelling(key: str, text: str) -> str:
    """A key as the file writes it."""
    found = re.search(rf"^[ \t]*({re.escape(key)})[ \t]*=", text, re.IGNORECASE | re.MULTILINE)
    return found.group(1) if found else key


def slurmd_generation(conf: str, cgroup_conf: str) -> str:
    """A short hash of what only a restarted slurmd picks up; slurmd restarts when it changes."""
    relevant = {key.lower() for key, effect in EFFECTS.items() if effect is Effect.RESTART_SLURMD}
    settings = sorted(f"{key}={value}" for key, value in parse_conf(conf).items() if key in relevant)
    return hashlib.sha256("\n".join([*settings, cgroup_conf]).encode()).hexdigest()[:12]

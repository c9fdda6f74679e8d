"""How a change of slurm.conf reaches the daemons. Runs on the controller and on the control machine.

Source: slurm.conf(5), "a restart of the daemon is required", Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import hashlib
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


def parse_conf(text: str) -> dict:
    """Single keys of a slurm.conf; node and partition lines are joined under their first key."""
    found: dict = {}
    repeated = ("nodename", "partitionname", "slurmctldhost")
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        key, separator, value = line.partition("=")
        if not separator:
            continue
        if key.strip().lower() in repeated:
            found[key.strip()] = found.get(key.strip(), "") + value.strip() + "\n"
        else:
            found[key.strip()] = value.strip()
    return found


def effect_of(old: str, new: str) -> tuple:
    """How the change from one slurm.conf to another takes effect, and the keys that changed."""
    before, after = parse_conf(old), parse_conf(new)
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    effects = {key.lower(): effect for key, effect in EFFECTS.items()}
    strongest = max((effects.get(key.lower(), Effect.RECONFIGURE) for key in changed), default=Effect.NONE)
    return strongest, changed


def slurmd_generation(conf: str, cgroup_conf: str) -> str:
    """A short hash of what only a restarted slurmd picks up; slurmd restarts when it changes."""
    settings = parse_conf(conf)
    effects = {key.lower(): effect for key, effect in EFFECTS.items()}
    relevant = sorted(
        f"{key}={value}" for key, value in settings.items() if effects.get(key.lower()) is Effect.RESTART_SLURMD
    )
    return hashlib.sha256("\n".join([*relevant, cgroup_conf]).encode()).hexdigest()[:12]

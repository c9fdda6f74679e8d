"""How a change of slurm.conf reaches the daemons. Runs on the controller and on the control machine.

Source: slurm.conf(5) of Slurm 22.05 to 26.05. Of the keys below it says: SelectType, "all job information
(running and pending) will be lost"; SwitchType, "records of all jobs in any state may be lost"; a partition in use
that is deleted, "jobs using the partition are canceled"; node configuration needs the daemons restarted or
reconfigured. slurmctld then ends the jobs whose nodes have other sockets, cores or generic resources than before.
job_container.conf(5), of changes under running jobs: "can be disruptive"; further steps of those jobs fail.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from .hostlist import HostlistError, expand, fold


class Effect(IntEnum):
    """How a changed key reaches the daemons; the strongest of all changes wins."""

    NONE = 0
    RECONFIGURE = 1
    RESTART_SLURMCTLD = 2
    RESTART_SLURMD = 3
    DRAIN_FIRST = 4
    REFUSED = 5


# For users. Part of the JSON output of Ansible's module.
POLICIES = {
    Effect.NONE: "none",
    Effect.RECONFIGURE: "reconfigure",
    Effect.RESTART_SLURMCTLD: "restart slurmctld",
    Effect.RESTART_SLURMD: "restart slurmd",
    Effect.DRAIN_FIRST: "drain first",
    Effect.REFUSED: "unsupported",
}

# Everything not listed here takes effect by `scontrol reconfigure`.
EFFECTS = {
    "ClusterName": Effect.REFUSED,  # slurmctld refuses to start over another cluster's state
    "StateSaveLocation": Effect.REFUSED,  # the jobs' state would be left behind
    "AuthType": Effect.REFUSED,  # all daemons at once, and running steps are cut off
    "CredType": Effect.REFUSED,  # likewise
    "SelectType": Effect.DRAIN_FIRST,
    "SwitchType": Effect.DRAIN_FIRST,
    "JobContainerType": Effect.DRAIN_FIRST,
    **dict.fromkeys(
        (
            "AccountingStorageTRES",
            "AuthAltParameters",
            "AuthAltTypes",
            "AuthInfo",
            "GresTypes",
            "JobCompType",
            "NodeName",
            "PreemptType",
            "PriorityType",
            "SchedulerType",
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
            "LaunchParameters",
            "MpiDefault",
            "PluginDir",
            "ProctrackType",
            "PrologFlags",
            "SlurmdPort",
            "SlurmdSpoolDir",
            "TaskPlugin",
        ),
        Effect.RESTART_SLURMD,
    ),
}

# A change ends no job, but fails its next step: the job has no directory where the plugin expects it.
CONTAINERS = frozenset(("JobContainerType", "job_container.conf"))
# Keys that slurmd reads only when it starts, although they change while no jobs run.
_AT_START = frozenset(("jobcontainertype",))

# Node attributes used to place jobs: slurmctld ends the jobs if they change.
PLACING = frozenset((
    "boards", "corespeccount", "corespersocket", "cpus", "cpuspeclist", "gres", "procs", "sockets", "socketsperboard",
    "threadspercore",
))  # fmt: skip
# Lines that define an object: key and attributes.
THINGS = ("NodeName", "PartitionName")
_REPEATED = ("nodename", "partitionname", "slurmctldhost")
_EFFECTS = {key.lower(): effect for key, effect in EFFECTS.items()}
_ATTRIBUTE = re.compile(r"(\w+)=(\"[^\"]*\"|\S*)")


class Change(NamedTuple):
    """One changed setting. `old` or `new` is '' if there is none; `names` are the nodes or partitions of a line."""

    key: str
    old: str
    new: str
    effect: Effect
    names: tuple[str, ...] = ()

    @property
    def action(self) -> str:
        """The action on the key: modify, add or remove."""
        return "modify" if self.old and self.new else "add" if self.new else "remove"


def parse_conf(text: str) -> dict[str, str]:
    """Keys of a slurm.conf in lower case, because Slurm ignores case; repeated lines are joined."""
    values: dict[str, str] = {}
    for key, value in _settings(text):
        values[key] = values.get(key, "") + value + "\n" if key in _REPEATED else value
    return values


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for raw in text.splitlines():
        key, separator, value = raw.partition("#")[0].strip().partition("=")
        if separator:
            yield key.strip().lower(), value.strip()


def changes(old: str, new: str) -> list[Change]:
    """The changes between two slurm.conf, sorted by key; nodes and partitions by attribute."""
    before, after = parse_conf(old), parse_conf(new)
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    result = [
        Change(
            _spelling(key, f"{new}\n{old}"),
            ", ".join(before.get(key, "").split("\n")).rstrip(", "),
            ", ".join(after.get(key, "").split("\n")).rstrip(", "),
            _EFFECTS.get(key, Effect.RECONFIGURE),
        )
        for key in keys - {thing.lower() for thing in THINGS}
    ]
    result += _node_changes(definitions(old, "NodeName"), definitions(new, "NodeName"), f"{new}\n{old}")
    result += _partition_changes(definitions(old, "PartitionName"), definitions(new, "PartitionName"), f"{new}\n{old}")
    return sorted(result, key=lambda change: change.key.lower())


def strongest(all_changes: Sequence[Change]) -> tuple[Effect, list[str]]:
    """The strongest effect of some changes, and their keys."""
    effect = max((change.effect for change in all_changes), default=Effect.NONE)
    return effect, list(dict.fromkeys(change.key.split()[0].partition("=")[0] for change in all_changes))


def definitions(text: str, key_name: str) -> dict[str, dict[str, str]]:
    """{name: {attribute: value}} of all NodeName or PartitionName lines; attributes are in lower case."""
    entries: dict[str, dict[str, str]] = {}
    defaults: dict[str, str] = {}
    for key, value in _settings(text):
        if key != key_name.lower():
            continue
        expression, _, rest = value.partition(" ")
        attributes = {name.lower(): content for name, content in _ATTRIBUTE.findall(rest)}
        if expression.upper() == "DEFAULT":
            defaults.update(attributes)
            continue
        for name in _names(expression):
            entries.setdefault(name, {}).update({**defaults, **attributes})
    return entries


def _names(expression: str) -> list[str]:
    try:
        return expand(expression)
    except HostlistError:
        # Slurm refuses it, and says why
        return [expression]


def _node_changes(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]], text: str) -> Iterator[Change]:
    nodes_by_change: dict[tuple[str, str, str, Effect], list[str]] = {}
    for name in old.keys() | new.keys():
        if name not in new:
            nodes_by_change.setdefault(("", _line(old[name], text), "", Effect.DRAIN_FIRST), []).append(name)
        elif name not in old:
            nodes_by_change.setdefault(("", "", _line(new[name], text), Effect.RESTART_SLURMCTLD), []).append(name)
        else:
            for attribute, before, after in _differing(old[name], new[name]):
                effect = Effect.DRAIN_FIRST if attribute in PLACING else Effect.RESTART_SLURMCTLD
                nodes_by_change.setdefault((attribute, before, after, effect), []).append(name)
    for (attribute, before, after, effect), names in nodes_by_change.items():
        names.sort()
        key = f"NodeName={fold(names)} {_spelling(attribute, text)}".rstrip()
        yield Change(key, before, after, effect, tuple(names))


def _partition_changes(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]], text: str) -> Iterator[Change]:
    for name in old.keys() | new.keys():
        if name not in new:
            yield Change(f"PartitionName={name}", _line(old[name], text), "", Effect.DRAIN_FIRST, (name,))
        elif name not in old:
            yield Change(f"PartitionName={name}", "", _line(new[name], text), Effect.RECONFIGURE, (name,))
        else:
            for attribute, before, after in _differing(old[name], new[name]):
                key = f"PartitionName={name} {_spelling(attribute, text)}"
                yield Change(key, before, after, Effect.RECONFIGURE, (name,))


def _differing(old: dict[str, str], new: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for attribute in sorted(old.keys() | new.keys()):
        if old.get(attribute) != new.get(attribute):
            yield attribute, old.get(attribute, ""), new.get(attribute, "")


def _line(attributes: dict[str, str], text: str) -> str:
    return " ".join(f"{_spelling(name, text)}={value}" for name, value in attributes.items()) or "(defaults)"


def _spelling(key: str, text: str) -> str:
    """A key or attribute in the spelling of the file."""
    match = re.search(rf"(?:^|[ \t])({re.escape(key)})[ \t]*=", text, re.IGNORECASE | re.MULTILINE)
    return match.group(1) if key and match else key


def slurmd_generation(conf: str, cgroup_conf: str, container_conf: str = "") -> str:
    """A short hash of the settings that need a restart of slurmd; slurmd restarts when it changes."""
    relevant = _AT_START | {key.lower() for key, effect in EFFECTS.items() if effect is Effect.RESTART_SLURMD}
    settings = sorted(f"{key}={value}" for key, value in parse_conf(conf).items() if key in relevant)
    files = [cgroup_conf, container_conf] if container_conf else [cgroup_conf]
    return hashlib.sha256("\n".join([*settings, *files]).encode()).hexdigest()[:12]

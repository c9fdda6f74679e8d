"""Current state of one node: its own report, Slurm's, and each component compared with its last deploy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from deepopsctl.model.cluster import Node, Role
from deepopsctl.model.json_objects import BackupEntry, ComponentEntry, NodeEntry
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.slurm.state import SlurmJob, SlurmNode
from deepopsctl.text.answers import Fields, OversizedError, members, moment

# components that a deploy removes once they are no longer wanted, and how; others stay installed
REMOVED_BY = MappingProxyType({
    "storage": "`deepopsctl deploy storage` removes it, if cluster.yml has a `storage:` key (`storage: []` is enough)",
    "monitoring": "`deepopsctl deploy monitoring` removes it",
})  # fmt: skip


class Answer(StrEnum):
    """Whether a node answered."""

    OK = "ok"
    NONE = "no answer"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Amount:
    """Used and total amount of a resource; None if unknown."""

    used: int | None = None
    total: int | None = None

    def __add__(self, other: Amount) -> Amount:
        return Amount(_sum(self.used, other.used), _sum(self.total, other.total))


class Deploy(StrEnum):
    """State of a node, or of a component on it, compared with its last deploy."""

    IN_STEP = "in step"
    BEHIND = "behind"
    DRIFTED = "drifted"
    LEFT = "no longer wanted"
    NEVER = "not deployed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LastBackup:
    """When the last good backup of a node was made (None: never), its snapshot, and why the last one failed."""

    made: datetime | None
    snapshot: str = ""
    failure: str = ""

    def as_object(self) -> BackupEntry:
        """Its entry in `status --json`."""
        made = self.made.isoformat() if self.made else ""
        return {"made": made, "snapshot": self.snapshot, "failure": self.failure}


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One component on one node; `differences` lists what has changed since its deploy."""

    name: str
    deploy: Deploy
    differences: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    # optional downloads that its deploy left out: what and why
    left_out: tuple[tuple[str, str], ...] = ()

    def as_object(self) -> ComponentEntry:
        """Its entry in `status --json`."""
        return {
            "deploy": str(self.deploy),
            "differences": list(self.differences),
            "digests": list(self.digests),
            "left_out": [{"what": what, "message": why} for what, why in self.left_out],
        }


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Status of one node. `message` is why it did not answer, or what failed there.

    `deploy` sums up its components, compared with those of all other nodes.
    """

    node: Node
    answer: Answer = Answer.NONE
    message: str = ""
    hint: str = ""
    deploy: Deploy = Deploy.UNKNOWN
    components: tuple[ComponentStatus, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    slurm: SlurmNode | None = None
    jobs: tuple[SlurmJob, ...] = ()
    hardware: NodeHardware | None = None
    # None where it makes none
    backup: LastBackup | None = None
    backup_of_monitoring: LastBackup | None = None
    # whether a restore was begun here and has not ended
    restore: bool = False
    # file systems without room, each as a sentence and what to do
    full: tuple[tuple[str, str], ...] = ()
    # of the first controller: the record of an upgrade of Slurm that is under way
    upgrade: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def name(self) -> str:
        """Its name in cluster.yml."""
        return self.node.name

    @property
    def roles(self) -> tuple[str, ...]:
        """What it is for, in a fixed order."""
        return tuple(str(role) for role in Role if role in self.node.roles)

    @property
    def is_compute(self) -> bool:
        """Slurm should know it."""
        return Role.COMPUTE in self.node.roles

    @property
    def differences(self) -> tuple[str, ...]:
        """Manual changes of any component since its deploy."""
        return tuple(dict.fromkeys(text for component in self.components for text in component.differences))

    @property
    def state(self) -> str:
        """Slurm's state in a word; '' without one."""
        return self.slurm.word if self.slurm else ""

    @property
    def cpus(self) -> Amount:
        """CPUs: Slurm's count, or hardware.yml's."""
        if self.slurm:
            return Amount(self.slurm.alloc_cpus, self.slurm.cpus)
        return Amount(None, self.hardware.cpus if self.hardware and self.is_compute else None)

    @property
    def memory_mb(self) -> Amount:
        """Memory for jobs in MiB: Slurm's, or what hardware.yml has."""
        if self.slurm:
            return Amount(self.slurm.alloc_memory_mb, self.slurm.memory_mb)
        return Amount(None, self.hardware.memory_mb if self.hardware and self.is_compute else None)

    @property
    def gpus(self) -> Amount:
        """GPUs: Slurm's count, or cluster.yml's."""
        if self.slurm:
            return Amount(self.slurm.alloc_gpus, self.slurm.gpus)
        return Amount(None, self.node.gpus.count if self.node.gpus else 0 if self.is_compute else None)

    def as_object(self) -> NodeEntry:
        """Its entry in `status --json`."""
        return {
            "name": self.name,
            "roles": list(self.roles),
            "reachable": self.answer is not Answer.NONE,
            "state": self.state or None,
            "slurm_state": self.slurm.state if self.slurm else None,
            "reason": self.slurm.reason if self.slurm else "",
            "reason_user": self.slurm.reason_user if self.slurm else "",
            "cpus": self.cpus.total,
            "cpus_used": self.cpus.used,
            "memory_mb": self.memory_mb.total,
            "memory_used_mb": self.memory_mb.used,
            "gpus": self.gpus.total,
            "gpus_used": self.gpus.used,
            "jobs": len(self.jobs),
            "deploy": str(self.deploy),
            "differences": list(self.differences),
            "components": {component.name: component.as_object() for component in self.components},
            "versions": dict(self.versions),
            "message": self.message,
        }


def with_answer(status: NodeStatus, data: Mapping[str, object]) -> NodeStatus:
    """The same node, with what the module node_info returned under `node`."""
    try:
        return _with_report(status, Fields(data))
    except OversizedError as error:
        return replace(status, answer=Answer.FAILED, message=error.message, hint=error.hint)


def _with_report(status: NodeStatus, report: Fields) -> NodeStatus:
    return replace(
        status,
        answer=Answer.OK,
        components=parse_components(report.values.get("components")),
        versions=report.words("versions"),
        backup=_parse_backup(report.part("backup")),
        backup_of_monitoring=_parse_backup(report.part("backup_of_monitoring")),
        restore=report.yes("restore"),
        full=tuple(map(_parse_full, report.parts("full"))),
        upgrade=report.part("upgrade").values,
    )


_FULL = {
    "Slurm's state": "slurmctld can't save jobs, and refuses new ones",
    "the accounting database": "jobs that end are not recorded",
    "the system": "daemons can't write logs and state",
}


def _parse_full(entry: Fields) -> tuple[str, str]:
    path, what, why = (entry.text(key) for key in ("path", "what", "why"))
    left = f"has {entry.number('free_mb')} MiB left"
    state = {"files": "has no inodes left", "read-only": "is read-only"}.get(why, left)
    hint = f"make room there (`df -h {path}`, `df -i {path}`), or enlarge it"
    return (
        f"{path} ({what}) {state}: {_FULL.get(what, '')}",
        f"`dmesg` says why {path} is read-only" if why == "read-only" else hint,
    )


def _parse_backup(data: Fields) -> LastBackup | None:
    if not data.values.get("configured"):
        return None
    good = data.part("last_good")
    return LastBackup(moment(good.values.get("finished")), good.text("snapshot"), data.text("message"))


def parse_components(data: object) -> tuple[ComponentStatus, ...]:
    """The `components` of node_info, without those that are neither wanted nor installed."""
    parsed = (_parse(name, entry) for name, entry in members(data))
    return tuple(component for component in parsed if component)


def overall_deploy(components: Iterable[ComponentStatus], deployed: Collection[str]) -> Deploy:
    """The state of the whole node: the worst of its components. Components that are deployed nowhere don't count."""
    states = {part.deploy for part in components if part.deploy is not Deploy.NEVER or part.name in deployed}
    if states <= {Deploy.NEVER}:
        return Deploy.NEVER
    if Deploy.DRIFTED in states:
        return Deploy.DRIFTED
    return Deploy.IN_STEP if states == {Deploy.IN_STEP} else Deploy.BEHIND


def may_have(node: Node, component: str) -> bool:
    """Whether a node that does not answer may have a component."""
    return component != "nvidia" or node.gpus is not None or Role.LOGIN in node.roles


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


def _parse(name: str, data: Fields) -> ComponentStatus | None:
    if not data.values.get("wanted"):
        return ComponentStatus(name, Deploy.LEFT) if data.values.get("left") and name in REMOVED_BY else None
    differences = data.texts("differences")
    if not data.values.get("deployed"):
        deploy = Deploy.NEVER
    elif differences:
        deploy = Deploy.DRIFTED
    elif data.texts("missing") or data.texts("stale"):
        deploy = Deploy.BEHIND
    else:
        deploy = Deploy.IN_STEP
    left_out = tuple((entry.text("what"), entry.text("message")) for entry in data.parts("left_out"))
    return ComponentStatus(name, deploy, differences, data.texts("digests"), left_out)

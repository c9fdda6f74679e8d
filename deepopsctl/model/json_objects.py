"""What `--json` prints, command by command; docs/reference/json.md and schemas/output.json are made from it.

A key may be added in any release, and none is removed or changed while `schema` stays the same.
Annotations are evaluated here: `__required_keys__` would otherwise have those that are NotRequired.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NotRequired, TypedDict

SCHEMA: Final = 1


class Answer(TypedDict):
    """What every object has."""

    schema: Literal[1]
    command: str
    ok: bool


class Fault(TypedDict):
    """One problem of the input: where, what, and what to do."""

    where: str
    message: str
    hint: str


class Refusal(TypedDict):
    """A command that was refused, or was interrupted before it began; it has no `command`."""

    schema: Literal[1]
    ok: Literal[False]
    errors: list[Fault]


class Counts(TypedDict):
    """Tasks on a node, as Ansible counts them."""

    ok: int
    changed: int
    failed: int
    unreachable: int
    skipped: int


class TaskFailure(TypedDict):
    """A task that failed on a node; `host` is empty where Ansible itself failed."""

    host: str
    component: str
    task: str
    message: str
    hint: str


class SlowTask(TypedDict):
    """From its start on the first node to its end on the last one."""

    task: str
    elapsed_s: float


class Omission(TypedDict):
    """An optional download that could not be reached."""

    host: str
    component: str
    what: str
    message: str
    hint: str


class ChangeEntry(TypedDict):
    """One change on a node; `host` is empty where a file of the cluster directory changes."""

    host: str
    component: str
    kind: str
    name: str
    action: str
    detail: NotRequired[str]
    policy: NotRequired[str]
    diff: NotRequired[str]
    new: NotRequired[bool]
    same_as: NotRequired[str]


class RunParts(TypedDict):
    """What the tasks of a run did."""

    hosts: dict[str, Counts]
    failures: list[TaskFailure]
    slowest: list[SlowTask]
    warnings: list[str]
    left_out: list[Omission]
    changes: list[ChangeEntry]


class RunObject(Answer, RunParts):
    """One run."""

    verdict: str
    run: str
    elapsed_s: float


class BlockedEntry(TypedDict):
    """Why `deploy` would refuse or fail."""

    host: str
    message: str
    hint: str


class JobEntry(TypedDict):
    """A running job."""

    id: str
    user: str
    nodes: list[str]
    state: NotRequired[str]


class PlanObject(RunObject):
    """A plan."""

    plan: str
    blocked: list[BlockedEntry]
    unknown: list[str]
    restarts: int
    same_as: dict[str, str]
    jobs: list[JobEntry]


class DrainedEntry(TypedDict):
    """A node, and what was done to it."""

    name: str
    action: str
    message: str
    state: str | None
    reason: str
    jobs: list[str]


class DrainObject(RunObject):
    """A drain or a resume."""

    nodes: list[DrainedEntry]


class CheckEntry(TypedDict):
    """One check."""

    suite: str
    name: str
    target: str
    status: Literal["pass", "warn", "fail", "skip"]
    measured: str
    expected: str
    unit: str
    message: str
    hint: NotRequired[str]


class ChecksObject(Answer):
    """Checks; `verdict` where the run ended before all were made, `gpus` where GPUs were measured."""

    run: str
    checks: list[CheckEntry]
    verdict: NotRequired[str]
    gpus: NotRequired[list[Mapping[str, object]]]


class Stop(TypedDict):
    """Why a command ended early."""

    message: str
    hint: str


class WorkflowObject(Answer):
    """A command of several runs."""

    nodes: list[str]
    run: str
    runs: list[str]
    elapsed_s: float
    hosts: dict[str, Counts]
    failures: list[TaskFailure]
    slowest: list[SlowTask]
    warnings: list[str]
    checks: NotRequired[list[CheckEntry]]
    stopped: NotRequired[Stop]


class UpgradeNode(TypedDict):
    """Packages of a node with their old and new version."""

    packages: dict[str, list[str]]
    held: dict[str, list[str]]
    left: dict[str, list[str]]
    kept_back: list[str]
    reboot: str


class OsPlanParts(TypedDict):
    """What `upgrade os` would do."""

    nodes: dict[str, UpgradeNode]
    idle: list[str]
    busy: list[str]
    others: list[str]
    left_alone: dict[str, str]
    unreachable: dict[str, str]
    jobs: list[JobEntry]


# `from` is a word of Python's
SlurmPlanParts = TypedDict(
    "SlurmPlanParts",
    {
        "from": str,
        "to": str,
        "version": str,
        "controllers": list[str],
        "login": list[str],
        "batches": list[list[str]],
        "unreachable": list[str],
        "refusals": list[Stop],
        "notes": list[str],
        "jobs": list[JobEntry],
    },
)


class NvidiaPlanParts(TypedDict):
    """What `upgrade nvidia` would do."""

    to: str
    nodes: dict[str, dict[str, str]]
    busy: list[str]
    left_alone: dict[str, str]
    unreachable: list[str]
    refusals: list[BlockedEntry]
    jobs: list[JobEntry]


class OsPlanObject(Answer, OsPlanParts):
    """`upgrade os --check`."""


class SlurmPlanObject(Answer, SlurmPlanParts):
    """`upgrade slurm --check`."""


class NvidiaPlanObject(Answer, NvidiaPlanParts):
    """`upgrade nvidia --check`."""


class ComponentEntry(TypedDict):
    """A component on a node."""

    deploy: str
    differences: list[str]
    digests: list[str]
    left_out: list[dict[str, str]]


class NodeEntry(TypedDict):
    """A node; null is what is not known."""

    name: str
    roles: list[str]
    reachable: bool
    state: str | None
    slurm_state: str | None
    reason: str
    reason_user: str
    cpus: int | None
    cpus_used: int | None
    memory_mb: int | None
    memory_used_mb: int | None
    gpus: int | None
    gpus_used: int | None
    jobs: int
    deploy: str
    differences: list[str]
    components: dict[str, ComponentEntry]
    versions: dict[str, str]
    message: str


class JobCounts(TypedDict):
    """Jobs of the cluster."""

    running: int
    pending: int


class SlurmEntry(TypedDict):
    """Slurm's controllers."""

    installed: bool
    up: bool
    error: str
    controllers: dict[str, bool]
    in_control: str
    jobs: JobCounts


class BackupEntry(TypedDict):
    """The last good backup of a node; `made` is empty where there is none."""

    made: str
    snapshot: str
    failure: str


class FindingEntry(TypedDict):
    """One finding."""

    kind: str
    nodes: list[str]
    message: str
    hint: str


class PastRunEntry(TypedDict):
    """An earlier run."""

    run: str
    command: object
    state: str
    started: object
    user: object
    elapsed_s: float | None
    nodes: int
    changed: int
    failed: int
    unreachable: int


class LastRunParts(TypedDict):
    """The last runs; an empty object for one that there was not. That of a validation also has `checks`."""

    last_run: dict[str, object]
    last_deploy: dict[str, object]
    last_upgrade: dict[str, object]
    last_restore: dict[str, object]
    last_validation: dict[str, object]


class StatusObject(Answer, LastRunParts):
    """The state of the cluster."""

    cluster: str
    slurm: SlurmEntry
    nodes: list[NodeEntry]
    listed_components: list[str] | None
    components: dict[str, dict[str, str]]
    versions: dict[str, dict[str, str]]
    last_backup: dict[str, BackupEntry]
    last_backup_of_monitoring: dict[str, BackupEntry]
    findings: list[FindingEntry]


class UseEntry(TypedDict):
    """What was used."""

    jobs: int
    rgu_hours: float
    rgu_years: float
    core_hours: float
    core_years: float


class UserUse(UseEntry):
    """What a user used."""

    name: str


class AccountUseEntry(UseEntry):
    """What an account used, with those below it."""

    name: str
    parent: str
    share: float
    target_rgu_years: float
    users: list[UserUse]


class UsageObject(Answer):
    """What accounts used."""

    cluster: str
    start: str
    end: str
    capacity_rgu: float
    accounts: list[AccountUseEntry]


class LogLine(TypedDict):
    """A line of a journal; '' for what it has not."""

    time: str
    host: str
    unit: str
    identifier: str
    priority: int | None
    message: str


class LogsObject(Answer):
    """Lines of journals."""

    collected_on: str
    lines: list[LogLine]


class BackupsObject(Answer):
    """What the nodes answered; each has `node`, the rest is by the action."""

    at: str
    nodes: list[dict[str, object]]


class WheelEntry(TypedDict):
    """A wheel."""

    name: str
    version: str
    file: str
    sha256: str


class WheelsObject(Answer):
    """The wheels that were added."""

    wheels: list[WheelEntry]


class EnvironmentEntry(TypedDict):
    """A version of an environment that has a lock; `wheels` is how many it has."""

    name: str
    version: str
    default: bool
    declared: bool
    python: str
    packages: list[str]
    wheels: int


class EnvironmentsObject(Answer):
    """The versions of environments."""

    environments: list[EnvironmentEntry]


class LockedObject(Answer):
    """The versions that were locked, as modules."""

    locked: list[str]


class NoteEntry(TypedDict):
    """Something of an imported file."""

    name: str
    where: str
    reason: str
    hint: str


class InventoryObject(Answer):
    """The cluster."""

    directory: str
    nodes: int
    components: list[str] | None
    groups: dict[str, list[str]]


class InitObject(InventoryObject):
    """The new cluster, and what of an import was not carried over, is to be checked, or was changed."""

    not_carried: list[NoteEntry]
    to_check: list[NoteEntry]
    changed: list[NoteEntry]


class TakeoverObject(Answer):
    """What is adopted; secrets by name only."""

    written: bool
    settings: dict[str, object]
    secrets: list[str]
    nodes: list[str]
    warnings: list[str]
    not_kept: list[str]


class LoginEntry(TypedDict):
    """A node, and how the login went."""

    name: str
    ok: bool
    changed: bool
    status: str
    sudo: str
    message: str
    hint: str


class SshSetupObject(Answer):
    """The logins."""

    nodes: list[LoginEntry]
    warnings: list[str]
    jump_host: NotRequired[LoginEntry]


class SshConfigObject(Answer):
    """The text."""

    config: str


class LabGpus(TypedDict):
    """Simulated GPUs of a node."""

    type: str
    count: int


class LabNodeEntry(TypedDict):
    """A node of a lab; `gpus` and `state` in `lab status`."""

    name: str
    address: str
    roles: list[str]
    gpus: NotRequired[LabGpus | None]
    state: NotRequired[str]


class LabEntry(TypedDict):
    """A lab."""

    name: str
    os: str
    nodes: list[LabNodeEntry]
    node_list: str
    password_file: str


class LabUpObject(Answer, LabEntry):
    """The lab, and the nodes that were added."""

    added: list[str]
    elapsed_s: float


class LabStatusObject(Answer):
    """All labs."""

    labs: list[LabEntry]


class RunsListObject(Answer):
    """Runs, the newest first."""

    runs: list[PastRunEntry]


class RunsShowObject(Answer):
    """A run: its run.json, its summary.json, and its files."""

    state: str
    request: dict[str, object]
    summary: dict[str, object]
    log: str
    events: str


class GroupEntry(TypedDict):
    """A group; dates are '' where there is none."""

    name: str
    gid: int
    pi: str
    start: str
    end: str
    shares: int
    open: bool


class PersonEntry(TypedDict):
    """A person."""

    name: str
    uid: int
    full_name: str
    mail: str
    groups: list[str]
    keys: list[str]
    shell: str
    expires: str
    sponsor: str
    active: bool


class MemberEntry(TypedDict):
    """A user of the directory service."""

    name: str
    uid: int
    accounts: list[str]


class PeopleParts(TypedDict):
    """Who there is."""

    groups: list[GroupEntry]
    people: list[PersonEntry]
    directory: list[MemberEntry]


class PeopleObject(Answer, PeopleParts):
    """The users of people.yml and of its directory service."""


class BuildEntry(TypedDict):
    """Built packages; `suite` is empty where the repository does not serve them."""

    source: str
    version: str
    release: str
    os: str
    architecture: str
    features: object
    digest: str
    built_at: str
    directory: str
    suite: str


class BuildsObject(Answer):
    """The builds of this machine."""

    builds: list[BuildEntry]


class BuiltObject(Answer, BuildEntry):
    """The packages; `built`: whether something had to be built."""

    built: bool
    changed: bool


class AddedObject(Answer, BuildEntry):
    """The packages; `added`: whether they are new here."""

    added: bool
    changed: bool


class FilesObject(Answer):
    """The files that were written."""

    files: list[str]


# the objects of each command, by its `command`; several where an option prints another one
OBJECTS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "init": (InitObject,),
        "inventory": (InventoryObject,),
        "ssh setup": (SshSetupObject,),
        "ssh config": (SshConfigObject,),
        "doctor": (ChecksObject,),
        "takeover": (TakeoverObject, RunObject),
        "takeover-finish": (RunObject,),
        "takeover-undo": (RunObject,),
        "plan": (PlanObject,),
        "deploy": (RunObject,),
        "validate": (ChecksObject,),
        "status": (StatusObject,),
        "usage": (UsageObject,),
        "docs users": (FilesObject,),
        "logs": (LogsObject,),
        "people list": (PeopleObject,),
        "people-sync": (RunObject,),
        "packages build": (BuiltObject,),
        "packages add": (AddedObject,),
        "packages list": (BuildsObject,),
        "wheels-add": (RunObject,),
        "wheels list": (WheelsObject,),
        "environments lock": (LockedObject,),
        "environments list": (EnvironmentsObject,),
        "environments-remove": (RunObject,),
        "node add": (WorkflowObject,),
        "node remove": (WorkflowObject,),
        "node replace": (WorkflowObject,),
        "node reboot": (WorkflowObject,),
        "node drain": (DrainObject,),
        "node resume": (DrainObject,),
        "secrets rotate": (WorkflowObject,),
        "backup run": (BackupsObject,),
        "backup list": (BackupsObject,),
        "backup verify": (BackupsObject,),
        "upgrade slurm": (WorkflowObject, SlurmPlanObject),
        "upgrade os": (WorkflowObject, OsPlanObject),
        "upgrade nvidia": (WorkflowObject, NvidiaPlanObject),
        "restore": (WorkflowObject,),
        "runs list": (RunsListObject,),
        "runs show": (RunsShowObject,),
        "lab up": (LabUpObject,),
        "lab status": (LabStatusObject,),
    }
)

"""What happens during a run, as small typed events; event_parser.py makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from deepopsctl.run.changes import Change


class Status(StrEnum):
    """How a task ended on one host."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    IGNORED = "ignored"
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class PlayStarted:
    """A play begins."""

    component: str
    play: str


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task begins, on all its hosts; `at` in seconds since the epoch."""

    component: str
    play: str
    task: str
    at: float


@dataclass(frozen=True, slots=True)
class HostStarted:
    """A task begins on one host."""

    host: str
    task: str


@dataclass(frozen=True, slots=True)
class HostResult:
    """A task has ended on one host. `data` is what a module returned under the key `deepops`.

    `left_out` is why a module skipped its work without failing: the run continues, and counts as failed in the end.
    An ignored failure may have changed something: `changed` is independent of the status.
    """

    host: str
    component: str
    play: str
    task: str
    status: Status
    elapsed_s: float
    at: float = 0.0
    changed: bool = False
    message: str = ""
    hint: str = ""
    left_out: str = ""
    data: tuple[Mapping[str, object], ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """The `--diff` output for one file on one host, as Ansible prints it."""

    host: str
    component: str
    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, deprecation or error that belongs to no single task: `kind` is Ansible's word for it."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ModuleMessage:
    """A progress message of a long task."""

    text: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Ansible's own count for one host. `ok` includes `changed`, as in Ansible."""

    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class Recap:
    """Ansible's count at the end of a playbook, for all hosts so far."""

    hosts: Mapping[str, Totals] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Output:
    """Lines as Ansible printed them; sent only with -vvv."""

    text: str


Event = PlayStarted | TaskStarted | HostStarted | HostResult | Difference | Notice | ModuleMessage | Recap | Output

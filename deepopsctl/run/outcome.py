"""Result of a run: its summary from the events, its exit code, and the documented JSON object."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median
from typing import Any

from deepopsctl.errors import ExitCode
from deepopsctl.model.json_objects import SCHEMA, Counts, Omission, RunObject, RunParts, TaskFailure
from deepopsctl.run.events import Change, Event, HostResult, Notice, Recap, Status, TaskStarted, Totals
from deepopsctl.run.hints import hint_for
from deepopsctl.run.workspace import RunDir
from deepopsctl.text.answers import mappings


class Verdict(StrEnum):
    """The end of a run in one word."""

    OK = "ok"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


_EXIT_CODES = {
    Verdict.OK: ExitCode.OK,
    Verdict.FAILED: ExitCode.FAILED,
    Verdict.UNREACHABLE: ExitCode.UNREACHABLE,
    Verdict.TIMEOUT: ExitCode.TIMEOUT,
    Verdict.INTERRUPTED: ExitCode.INTERRUPTED,
}

SLOWEST = 5
# a node is slow that takes so much longer than half of so many nodes (seconds)
LATE_S, FEWEST_COMPARED = 5.0, 3
# of changes, by how people call them
_KINDS = {
    "package": "packages", "file": "files", "key": "keys of slurm.conf", "unit": "services", "mount": "mounts",
    "database": "databases", "login": "databases", "account": "accounts", "user": "accounts", "qos": "accounts",
    "association": "accounts", "directory": "directories",
}  # fmt: skip
_ONE = {
    "packages": "package", "files": "file", "keys of slurm.conf": "key of slurm.conf", "services": "service",
    "mounts": "mount", "databases": "database", "accounts": "account", "directories": "directory",
    "others": "other",
}  # fmt: skip
COUNTS = tuple(Counts.__annotations__)
FAULT = tuple(TaskFailure.__annotations__)
# deepopsctl's playbooks make such groups with group_by; an empty one is the normal case
_EMPTY_GROUP = re.compile(r"Could not match supplied host pattern, ignoring: deepops_")
# IPv4 and IPv6
_OWN_ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(:[0-9a-f]{0,4}){2,7}\b")
# `held by process 287`, `[IP: 192.0.2.1 80]`
_OF_A_NODE = re.compile(r"(\b(?:process|pid)|\[IP:) [0-9a-f.:]+(?: [0-9]+(?=\]))?")


@dataclass(frozen=True, slots=True)
class Failure:
    """One task that failed on one host, or a host that did not answer."""

    host: str
    component: str
    task: str
    message: str
    hint: str
    unreachable: bool = False

    @property
    def anywhere(self) -> str:
        """The message without what is each node's own (its address, a process, a mirror's address), to group nodes."""
        message = _OF_A_NODE.sub(r"\1 N", self.message)
        return _OWN_ADDRESS.sub("ADDRESS", message) if self.unreachable else message


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An optional download that failed on one host: what a cluster does without, and why."""

    host: str
    component: str
    what: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Late:
    """The node that took longest: how much longer than half of the nodes with the same tasks, and where most of it."""

    host: str
    seconds: float
    task: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with some nodes, and what to do."""

    nodes: tuple[str, ...]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SameNodes:
    """Nodes that a plan did not check, because another one is the same, and why a deploy would not work somewhere.

    `like` is the checked node by node, `hostnames` what these nodes are called now.
    """

    like: Mapping[str, str] = field(default_factory=dict)
    hostnames: Mapping[str, str] = field(default_factory=dict)
    blocked: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a module returned under the key `deepops`."""

    host: str
    task: str
    data: Mapping[str, object]

    def entries(self, key: str) -> list[Mapping[str, object]]:
        """The mappings of the list under a key; empty if there is none."""
        return mappings(self.data.get(key))


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A whole run."""

    hosts: Mapping[str, Totals]
    failures: tuple[Failure, ...]
    slowest: tuple[tuple[str, float], ...]
    warnings: tuple[str, ...]
    results: tuple[TaskResult, ...]
    changes: tuple[Change, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    late: Late | None = None

    @property
    def failed(self) -> tuple[str, ...]:
        """Hosts on which a task failed."""
        return tuple(host for host, totals in self.hosts.items() if totals.failed)

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Hosts that did not answer."""
        return tuple(host for host, totals in self.hosts.items() if totals.unreachable)

    def as_object(self) -> RunParts:
        """Its part of the documented JSON object (DESIGN, section 5)."""
        return {
            "hosts": {host: chosen(totals, COUNTS) for host, totals in self.hosts.items()},
            "failures": [chosen(failure, FAULT) for failure in self.failures],
            "slowest": [{"task": task, "elapsed_s": elapsed} for task, elapsed in self.slowest],
            "warnings": list(self.warnings),
            "left_out": [chosen(entry, Omission.__annotations__) for entry in self.left_out],
            "changes": [change.as_object() for change in self.changes],
        }


def counted(changes: Iterable[Change]) -> str:
    """`12 packages, 31 files, 9 services`: each thing once, on however many nodes it changes."""
    kinds = Counter(_KINDS.get(kind, "others") for kind, _ in dict.fromkeys((each.kind, each.name) for each in changes))
    order = [*dict.fromkeys(_KINDS.values()), "others"]
    words = {name: name if count > 1 else _ONE[name] for name, count in kinds.items()}
    return ", ".join(f"{kinds[name]} {words[name]}" for name in order if name in kinds)


def chosen(source: object, names: Iterable[str]) -> Any:
    """The object with these attributes of another one."""
    return {name: getattr(source, name) for name in names}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run. `stopped` says why it ended early; then `at` names the task, `pending` its unfinished hosts."""

    run_dir: RunDir
    command: str
    summary: RunSummary
    elapsed_s: float
    return_code: int
    stopped: Verdict | None = None
    at: str = ""
    pending: tuple[str, ...] = ()
    same: SameNodes = field(default_factory=SameNodes)

    @property
    def run_id(self) -> str:
        """The run's name, for `deepopsctl runs show`."""
        return self.run_dir.id

    @property
    def verdict(self) -> Verdict:
        """From the events: runner returns 254 for both timeout and cancel, Ansible 4 also for its own errors."""
        if self.stopped:
            return self.stopped
        if any(not failure.unreachable for failure in self.summary.failures):
            return Verdict.FAILED
        if self.summary.unreachable:
            return Verdict.UNREACHABLE
        return Verdict.OK if self.return_code == 0 else Verdict.FAILED

    @property
    def ok(self) -> bool:
        """Everything asked was done on every host."""
        return self.verdict is Verdict.OK

    @property
    def exit_code(self) -> ExitCode:
        """DESIGN, section 5."""
        return _EXIT_CODES[self.verdict]

    @property
    def errors(self) -> tuple[str, ...]:
        """Ansible's error messages outside any task."""
        return tuple(failure.message for failure in self.summary.failures if not failure.host)

    def as_object(self) -> RunObject:
        """The `--json` object, also stored as summary.json in the run directory."""
        summary = self.summary
        return {
            "schema": SCHEMA,
            "command": self.command,
            "ok": self.ok,
            "verdict": str(self.verdict),
            "run": self.run_id,
            "elapsed_s": self.elapsed_s,
            **summary.as_object(),
        }


def reduce(events: Iterable[Event]) -> RunSummary:
    """The summary of a finished stream of events."""
    tally = Tally()
    for event in events:
        tally.add(event)
    return tally.summary()


@dataclass(slots=True)
class Tally:
    """The same, updated with each event during the run."""

    # failures and counts since the last recap; failures before it without a `rescue`
    _results: list[HostResult] = field(default_factory=list)
    _counts: dict[str, Totals] = field(default_factory=dict)
    _recap: Mapping[str, Totals] = field(default_factory=dict)
    _real: list[HostResult] = field(default_factory=list)
    _seen: dict[str, None] = field(default_factory=dict)
    _task: tuple[str, str] = ("", "")
    _spans: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _durations: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)
    _data: list[TaskResult] = field(default_factory=list)
    _left_out: list[HostResult] = field(default_factory=list)
    _changes: dict[tuple[str, ...], Change] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take one event into account."""
        if isinstance(event, HostResult):
            self._add_result(event)
        elif isinstance(event, TaskStarted):
            self._spans.setdefault((event.component, event.task), (event.at, event.at))
        elif isinstance(event, Recap):
            self._add_recap(event.hosts)
        elif isinstance(event, Notice) and event.kind != "error" and not _EMPTY_GROUP.search(event.text):
            self._warnings.setdefault(_one_line(event.text))

    def _add_recap(self, recap: Mapping[str, Totals]) -> None:
        """Ansible's count wins: only it knows of rescued failures. A host stops at its first real one, after those."""
        for host in (host for host in self._seen if host in recap):
            for status, count in ((Status.FAILED, recap[host].failed), (Status.UNREACHABLE, recap[host].unreachable)):
                mine, known = (_failures_of(host, status, results) for results in (self._results, self._real))
                self._real += mine[max(len(mine) + len(known) - count, 0) :]
        self._results = [result for result in self._results if result.host not in recap]
        self._counts = {host: totals for host, totals in self._counts.items() if host not in recap}
        self._recap = recap

    def _add_result(self, event: HostResult) -> None:
        self._seen.setdefault(event.host)
        self._counts[event.host] = _count(self._counts.get(event.host, Totals()), event)
        if event.status in (Status.FAILED, Status.UNREACHABLE):
            self._results.append(event)
        self._left_out += [event] if event.left_out else []
        key = (event.component, event.task)
        begin, end = self._spans.get(key, (event.at - event.elapsed_s, event.at))
        self._spans[key] = (begin, max(end, event.at))
        if event.status in (Status.OK, Status.CHANGED):
            hosts = self._durations.setdefault(key, {})
            hosts[event.host] = hosts.get(event.host, 0.0) + event.elapsed_s
        for warning in event.warnings:
            self._warnings.setdefault(f"{event.host}: {_one_line(warning)}")
        for change in event.changes:
            # in check mode a package is missing in every step that wants it
            self._changes.setdefault((change.host, *change.what), change)
        self._data += [TaskResult(event.host, event.task, data) for data in event.data]

    def summary(self, errors: str = "") -> RunSummary:
        """The summary so far. `errors` are Ansible's error messages outside any task."""
        failures = self._failures()
        if errors:
            failures += (Failure("", "", "", errors, hint_for(errors)),)
        return RunSummary(
            hosts={host: _sum(self._recap.get(host), self._counts.get(host)) for host in (*self._seen, *self._recap)},
            failures=failures,
            slowest=self._slowest(),
            warnings=tuple(self._unique_warnings()),
            results=tuple(self._data),
            changes=tuple(self._changes.values()),
            left_out=tuple(
                LeftOut(event.host, event.component, event.optional, event.left_out, event.hint)
                for event in self._left_out
                if event.optional
            ),
            late=self._late(),
        )

    def _late(self) -> Late | None:
        """The slowest node, where it kept the others waiting."""
        lost: dict[str, dict[str, float]] = {}
        for key, hosts in self._durations.items():
            usual = median(hosts.values())
            for host, elapsed in hosts.items() if len(hosts) >= FEWEST_COMPARED else ():
                lost.setdefault(host, {})[_label(key)] = elapsed - usual
        host = max(lost, key=lambda name: sum(lost[name].values()), default="")
        if not host or (seconds := sum(lost[host].values())) < LATE_S:
            return None
        return Late(host, round(seconds, 1), max(lost[host], key=lost[host].__getitem__))

    def _unique_warnings(self) -> Iterable[str]:
        """Warnings, except those about left-out work, which is listed apart."""
        known = {_one_line(event.left_out) for event in self._left_out}
        return (warning for warning in self._warnings if not any(reason in warning for reason in known))

    def _failures(self) -> tuple[Failure, ...]:
        results = [*self._real, *self._results, *(event for event in self._left_out if not event.optional)]
        results.sort(key=lambda result: (result.status is Status.UNREACHABLE, result.at))
        return tuple(
            Failure(
                result.host, result.component, result.task, result.left_out or result.message,
                result.hint or hint_for(result.left_out or result.message), result.status is Status.UNREACHABLE,
            )
            for result in results
        )  # fmt: skip

    def _slowest(self) -> tuple[tuple[str, float], ...]:
        spans = [(_label(key), round(end - begin, 1)) for key, (begin, end) in self._spans.items()]
        spans = [(task, elapsed) for task, elapsed in spans if elapsed > 0]
        return tuple(sorted(spans, key=lambda pair: -pair[1])[:SLOWEST])


def _label(key: tuple[str, str]) -> str:
    component, task = key
    return f"{component}: {task}" if component else task


def _failures_of(host: str, status: Status, results: Iterable[HostResult]) -> list[HostResult]:
    return [result for result in results if result.host == host and result.status is status]


def _sum(before: Totals | None, since: Totals | None) -> Totals:
    """Ansible's count at its last recap, and what came after that."""
    one, other = before or Totals(), since or Totals()
    return Totals(**{name: getattr(one, name) + getattr(other, name) for name in Totals.__dataclass_fields__})


def _count(totals: Totals, event: HostResult) -> Totals:
    """As Ansible counts: changed tasks and ignored failures are ok as well."""
    if event.status not in (Status.OK, Status.CHANGED, Status.IGNORED):
        name = str(event.status)
        return replace(totals, **{name: getattr(totals, name) + 1})
    return replace(
        totals,
        ok=totals.ok + 1,
        changed=totals.changed + event.changed,
        ignored=totals.ignored + (event.status is Status.IGNORED),
    )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line.removeprefix("[WARNING]: ").removeprefix("[DEPRECATION WARNING]: ")

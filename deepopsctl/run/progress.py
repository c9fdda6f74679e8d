"""Progress of a run: the state for the live view, and the lines for plain output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from deepopsctl.run.events import (
    Difference,
    Event,
    HostResult,
    HostStarted,
    ModuleMessage,
    PlayStarted,
    Recap,
    RunStarted,
    Status,
    TaskStarted,
)
from deepopsctl.text.amounts import amount
from deepopsctl.text.answers import mappings, text as text_of
from deepopsctl.text.node_sets import fold

# how a line begins that reports what would stop a deploy
BLOCKED = "blocked: "
# how a task's line counts: changed nodes are ok as well
_OK = (Status.OK, Status.CHANGED)
_OTHER = (
    (Status.CHANGED, "changed"),
    (Status.FAILED, "failed"),
    (Status.UNREACHABLE, "unreachable"),
    (Status.IGNORED, "failed, ignored"),
    (Status.SKIPPED, "skipped"),
)

# roles and tasks of a run whose share says nothing
_FEW = 3
# Ansible's own first task of every role: shown only if it fails
_ROUTINE = re.compile(r"(.* : )?Validating arguments against arg spec ")


@dataclass(slots=True)
class Progress:
    """State of a run. Feed it every event; `add` returns the lines of finished tasks."""

    # nothing is changed: the tasks are only checked
    check: bool = False
    component: str = ""
    play: str = ""
    task: str = ""
    module_message: str = ""
    started: set[str] = field(default_factory=set)
    done: dict[str, Status] = field(default_factory=dict)
    failed: dict[str, Status] = field(default_factory=dict)
    tasks: int = 0
    _plays: tuple[int, ...] = ()
    # plays that have begun, and the roles and tasks of the last one
    _begun: int = 0
    _parts: set[str] = field(default_factory=set)
    _blocked: set[str] = field(default_factory=set)
    _differences: dict[str, list[str]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Component and task."""
        return title(self.component, self._task)

    @property
    def _task(self) -> str:
        name = title("", self.task)
        return f"check: {name}" if self.check and name else name

    @property
    def doing(self) -> str:
        """The current activity; for a routine task, the name of its play."""
        return self.module_message or (self.play if _ROUTINE.match(self.task) else self._task)

    @property
    def share(self) -> float | None:
        """The share of the run's roles and tasks that have been gone through; None where there are hardly any."""
        if (whole := sum(self._plays)) < _FEW:
            return None
        now = self._plays[self._begun - 1] if 0 < self._begun <= len(self._plays) else 0
        return min((sum(self._plays[: max(self._begun - 1, 0)]) + min(max(len(self._parts) - 1, 0), now)) / whole, 1.0)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The last nodes of the current task, where most have ended it."""
        left = self.started - self.done.keys()
        return tuple(sorted(left)) if self.done and len(left) * 4 <= len(self.started) + 3 else ()

    def lost(self, status: Status) -> tuple[str, ...]:
        """The nodes that failed, or did not answer, until now."""
        return tuple(host for host, host_status in self.failed.items() if host_status is status)

    def add(self, event: Event) -> list[str]:
        """Process an event; returns the lines that are now complete."""
        return list(self._lines(event))

    def _lines(self, event: Event) -> Iterator[str]:
        if isinstance(event, PlayStarted | TaskStarted | Recap):
            yield from self._close()
        self._follow(event)
        if isinstance(event, ModuleMessage):
            self.module_message = event.text
            yield event.text
        elif isinstance(event, HostStarted):
            self.started.add(event.host)
        elif isinstance(event, Difference):
            # most nodes get the same change: it is shown once
            self._differences.setdefault(event.text, []).append(event.host)
        elif isinstance(event, HostResult):
            yield from self._result(event)

    def _follow(self, event: Event) -> None:
        """Where the run is."""
        if isinstance(event, RunStarted):
            self._plays = event.plays
        elif isinstance(event, PlayStarted):
            self.component, self.play = event.component, event.play
            self._begun, self._parts = self._begun + 1, set()
        elif isinstance(event, TaskStarted):
            self.component, self.play, self.task = event.component, event.play, event.task
            self.module_message = ""
            role, is_of_role, _ = event.task.partition(" : ")
            self._parts.add(role if is_of_role else event.task)

    def _result(self, event: HostResult) -> Iterator[str]:
        """What is reported of a node at once."""
        self.done[event.host] = event.status
        if event.status in (Status.FAILED, Status.UNREACHABLE):
            self.failed.setdefault(event.host, event.status)
            yield f"{title(event.component, event.task)}: {event.host} {event.status}: {_first_line(event.message)}"
        elif event.left_out:
            yield f"{title(event.component, event.task)}: {event.host} left out: {_first_line(event.left_out)}"
        yield from self._refusals(event)

    def _refusals(self, event: HostResult) -> Iterator[str]:
        """What a deploy would refuse, when a plan hears of it."""
        for data in event.data:
            for entry in mappings(data.get("blocked")):
                line = f"{BLOCKED}{event.host}: {_first_line(text_of(entry.get('message')))}"
                if line not in self._blocked:
                    self._blocked.add(line)
                    yield line

    def _close(self) -> Iterator[str]:
        """The line of the task that has just ended, if it did anything, and its `--diff` output."""
        if set(self.done.values()) - {Status.SKIPPED}:
            self.tasks += 1
            if not (_ROUTINE.match(self.task) and set(self.done.values()) <= {Status.OK, Status.SKIPPED}):
                yield f"{self.title}: {self.counts()}"
        for text, hosts in self._differences.items():
            yield f"{fold(hosts)}:\n{text}"
        self.started.clear()
        self.done.clear()
        self._differences.clear()

    def counts(self) -> str:
        """`3 nodes ok, 2 changed`: the task so far."""
        statuses = list(self.done.values())
        fine = sum(status in _OK for status in statuses)
        parts = [(fine, "ok")] if fine else []
        parts += [(count, word) for status, word in _OTHER if (count := statuses.count(status))]
        texts = [f"{count} {'would change' if self.check and word == 'changed' else word}" for count, word in parts]
        if parts:
            count, word = parts[0]
            texts[0] = f"{amount(count, 'node')} {word}"
        return ", ".join(texts)


def title(component: str, task: str) -> str:
    """`slurm: Install packages`; without the role name that Ansible writes in front of a task."""
    task = task.rpartition(" : ")[2]
    return f"{component}: {task}" if component and task else component or task


def _first_line(text: str) -> str:
    return text.partition("\n")[0]

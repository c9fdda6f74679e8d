"""Progress of a run: the state for the live view, and the lines for plain output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
class _Open:
    """A task that nodes are at: who began it, and how it ended for whom."""

    component: str
    task: str
    started: set[str] = field(default_factory=set)
    done: dict[str, Status] = field(default_factory=dict)
    differences: dict[str, list[str]] = field(default_factory=dict)

    @property
    def left(self) -> set[str]:
        """The nodes that have not ended it."""
        return self.started - self.done.keys()


@dataclass(slots=True)
class Progress:
    """State of a run. Feed it every event; `add` returns the lines of finished tasks."""

    # nothing is changed: the tasks are only checked
    check: bool = False
    component: str = ""
    play: str = ""
    module_message: str = ""
    failed: dict[str, Status] = field(default_factory=dict)
    tasks: int = 0
    _plays: tuple[int, ...] = ()
    # plays that have begun, and the roles and tasks of the last one
    _begun: int = 0
    _parts: set[str] = field(default_factory=set)
    _blocked: set[str] = field(default_factory=set)
    # by its name, in the order of their beginning: several where a play has no node wait for another
    _open: dict[str, _Open] = field(default_factory=dict)

    @property
    def _now(self) -> _Open:
        """The task that most nodes are at, the last one of several."""
        tasks = list(self._open.values())
        return max(reversed(tasks), key=lambda each: len(each.left)) if tasks else _Open(self.component, "")

    @property
    def task(self) -> str:
        """What most nodes are at."""
        return self._now.task

    @property
    def started(self) -> set[str]:
        """The nodes that have begun that task."""
        return self._now.started

    @property
    def done(self) -> dict[str, Status]:
        """How it ended for which node."""
        return self._now.done

    @property
    def left(self) -> set[str]:
        """The nodes that have begun it and not ended it."""
        return self._now.left

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The nodes that have begun any task and not ended it."""
        return tuple(sorted(set().union(*(task.left for task in self._open.values()))))

    @property
    def title(self) -> str:
        """Component and task."""
        return title(self.component, self._named(self.task))

    def _named(self, task: str) -> str:
        name = title("", task)
        return f"check: {name}" if self.check and name else name

    @property
    def doing(self) -> str:
        """The current activity; for a routine task, the name of its play."""
        return self.module_message or (self.play if _ROUTINE.match(self.task) else self._named(self.task))

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
        now = self._now
        return tuple(sorted(now.left)) if now.done and len(now.left) * 4 <= len(now.started) + 3 else ()

    def lost(self, status: Status) -> tuple[str, ...]:
        """The nodes that failed, or did not answer, until now."""
        return tuple(host for host, host_status in self.failed.items() if host_status is status)

    def add(self, event: Event) -> list[str]:
        """Process an event; returns the lines that are now complete."""
        return list(self._lines(event))

    def _lines(self, event: Event) -> Iterator[str]:
        if isinstance(event, PlayStarted | Recap):
            yield from self._close(*self._open)
        elif isinstance(event, TaskStarted):
            name = title("", event.task)
            yield from self._close(*(other for other, task in self._open.items() if other != name and not task.left))
            self._open.setdefault(name, _Open(event.component, event.task))
        self._follow(event)
        if isinstance(event, ModuleMessage):
            self.module_message = event.text
            yield event.text
        elif isinstance(event, HostStarted):
            self._at(event.task).started.add(event.host)
        elif isinstance(event, Difference):
            # most nodes get the same change: it is shown once
            self._at(event.task).differences.setdefault(event.text, []).append(event.host)
        elif isinstance(event, HostResult):
            yield from self._result(event)

    def _at(self, task: str) -> _Open:
        """A task that is open, or was until just now."""
        return self._open.setdefault(title("", task), _Open(self.component, task))

    def _follow(self, event: Event) -> None:
        """Where the run is."""
        if isinstance(event, RunStarted):
            self._plays = event.plays
        elif isinstance(event, PlayStarted):
            self.component, self.play = event.component, event.play
            self._begun, self._parts = self._begun + 1, set()
        elif isinstance(event, TaskStarted):
            self.component, self.play = event.component, event.play
            self.module_message = ""
            role, is_of_role, _ = event.task.partition(" : ")
            self._parts.add(role if is_of_role else event.task)

    def _result(self, event: HostResult) -> Iterator[str]:
        """What is reported of a node at once."""
        self._at(event.task).done[event.host] = event.status
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

    def _close(self, *names: str) -> Iterator[str]:
        """The lines of tasks that have just ended, of those that did anything, and their `--diff` output."""
        for task in [self._open.pop(name) for name in names]:
            if set(task.done.values()) - {Status.SKIPPED}:
                self.tasks += 1
                if not (_ROUTINE.match(task.task) and set(task.done.values()) <= {Status.OK, Status.SKIPPED}):
                    yield f"{title(task.component, self._named(task.task))}: {self._counts(task.done)}"
            for text, hosts in task.differences.items():
                yield f"{fold(hosts)}:\n{text}"

    def _counts(self, done: Mapping[str, Status]) -> str:
        """`3 nodes ok, 2 changed`."""
        statuses = list(done.values())
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

"""A run as it goes on: the state that a live view shows, and the plain lines for everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deepopsctl.events import (
    Difference,
    Event,
    HostResult,
    HostStarted,
    Output,
    PlayStarted,
    Recap,
    Status,
    TaskStarted,
)

# `skipped` comes last: it says the least
_ORDER = (Status.OK, Status.CHANGED, Status.FAILED, Status.IGNORED, Status.UNREACHABLE, Status.SKIPPED)
_WORDS = {Status.OK: "ok", Status.IGNORED: "failed but ignored"}


@dataclass(slots=True)
class Progress:
    """Where a run is. Feed it every event; what `add` returns is what a plain terminal should print."""

    component: str = ""
    play: str = ""
    task: str = ""
    started: set[str] = field(default_factory=set)
    done: dict[str, Status] = field(default_factory=dict)
    failures: list[HostResult] = field(default_factory=list)
    tasks_done: int = 0

    def add(self, event: Event) -> list[str]:
        """Take an event; the lines that are now complete."""
        return list(self._lines(event))

    def _lines(self, event: Event) -> Iterator[str]:
        if isinstance(event, PlayStarted | TaskStarted | Recap):
            yield from self._close()
        if isinstance(event, PlayStarted | TaskStarted):
            self.component, self.play = event.component, event.play
        if isinstance(event, TaskStarted):
            self.task = event.task
        elif isinstance(event, HostStarted):
            self.started.add(event.host)
        elif isinstance(event, HostResult):
            self.done[event.host] = event.status
            if event.status in (Status.FAILED, Status.UNREACHABLE):
                self.failures.append(event)
                yield f"{_title(event.component, event.task)}: {event.host} {event.status}: {_first_line(event.message)}"
        elif isinstance(event, Difference | Output):
            yield from event.text.splitlines()

    def _close(self) -> Iterator[str]:
        """The line of the task that has just ended, if it did anything."""
        if self.done and set(self.done.values()) != {Status.SKIPPED}:
            yield f"{_title(self.component, self.task)}: {self.counts()}"
        self.tasks_done += bool(self.done)
        self.started.clear()
        self.done.clear()

    def counts(self) -> str:
        """`3 nodes ok, 2 changed`: the current task, status by status."""
        totals = {status: list(self.done.values()).count(status) for status in _ORDER}
        parts = [(count, _WORDS.get(status, str(status))) for status, count in totals.items() if count]
        texts = [f"{count} {word}" for count, word in parts]
        if parts:
            count, word = parts[0]
            texts[0] = f"{count} node{'s' if count > 1 else ''} {word}"
        return ", ".join(texts)


def _title(component: str, task: str) -> str:
    # a role's name in front of a task is Ansible's; the component says enough
    return f"{component}: {task.rpartition(' : ')[2]}" if component else task


def _first_line(message: str) -> str:
    return message.splitlines()[0] if message else ""

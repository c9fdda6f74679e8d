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
    Status,
    TaskStarted,
)
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold

# how a task's line counts: changed nodes are ok as well
_OK = (Status.OK, Status.CHANGED)
_OTHER = (
    (Status.CHANGED, "changed"),
    (Status.FAILED, "failed"),
    (Status.UNREACHABLE, "unreachable"),
    (Status.IGNORED, "failed, ignored"),
    (Status.SKIPPED, "skipped"),
)

# Ansible's own first task of every role: shown only if it fails
_ROUTINE = re.compile(r"(.* : )?Validating arguments against arg spec ")


@dataclass(slots=True)
class Progress:
    """State of a run. Feed it every event; `add` returns the lines of finished tasks."""

    component: str = ""
    play: str = ""
    task: str = ""
    module_message: str = ""
    started: set[str] = field(default_factory=set)
    done: dict[str, Status] = field(default_factory=dict)
    failed: dict[str, Status] = field(default_factory=dict)
    tasks: int = 0
    _differences: dict[str, list[str]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Component and task."""
        return title(self.component, self.task)

    @property
    def doing(self) -> str:
        """The current activity; for a routine task, the name of its play."""
        return self.module_message or (self.play if _ROUTINE.match(self.task) else title("", self.task))

    def lost(self, status: Status) -> tuple[str, ...]:
        """The nodes that failed, or did not answer, until now."""
        return tuple(host for host, host_status in self.failed.items() if host_status is status)

    def add(self, event: Event) -> list[str]:
        """Process an event; returns the lines that are now complete."""
        return list(self._lines(event))

    def _lines(self, event: Event) -> Iterator[str]:
        if isinstance(event, PlayStarted | TaskStarted | Recap):
            yield from self._close()
        if isinstance(event, PlayStarted | TaskStarted):
            self.component, self.play = event.component, event.play
        if isinstance(event, TaskStarted):
            self.task, self.module_message = event.task, ""
        elif isinstance(event, ModuleMessage):
            self.module_message = event.text
            yield event.text
        elif isinstance(event, HostStarted):
            self.started.add(event.host)
        elif isinstance(event, Difference):
            # most nodes get the same change: it is shown once
            self._differences.setdefault(event.text, []).append(event.host)
        elif isinstance(event, HostResult):
            self.done[event.host] = event.status
            if event.status in (Status.FAILED, Status.UNREACHABLE):
                self.failed.setdefault(event.host, event.status)
                yield f"{title(event.component, event.task)}: {event.host} {event.status}: {_first_line(event.message)}"
            elif event.left_out:
                yield f"{title(event.component, event.task)}: {event.host} left out: {_first_line(event.left_out)}"

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
        texts = [f"{count} {word}" for count, word in parts]
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

"""The live view on a terminal. Imported only there: rich takes its time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import IO, Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from deepopsctl.cli.output import discard
from deepopsctl.run import claim
from deepopsctl.run.events import Event, HostResult, Status, TaskStarted
from deepopsctl.run.progress import BLOCKED, Progress
from deepopsctl.status.package_progress import Inspect
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold
from deepopsctl.text.printable import printable

# playbooks that are not components: the lock that a deploy releases
_UNSEEN = frozenset({PurePath(claim.PLAYBOOK).name})
# after this time without an answer, the last nodes of a task are shown
_LATE_S = 2.0
# after this time, one of them is asked what its packages are at, and how often
_LONG_S, _INSPECT_S = 15.0, 4.0


@contextmanager
def live_view(
    total: int | None, verbosity: int = 0, *, check: bool = False, inspect: Inspect | None = None
) -> Iterator[Callable[[Event], None]]:
    """Two lines that follow the run; failures (with -v, every task) scroll away above them.

    `inspect` asks a node what its packages are at, for the second line of a task that takes long.
    """
    # foreign text is never markup
    console = Console(file=cast("IO[str]", _Terminal(sys.stderr)), markup=False, highlight=False, emoji=False)
    view = _View(total, Progress(check))
    with _inspecting(view, inspect), Live(view, console=console, refresh_per_second=8, transient=True) as live:

        def watch(event: Event) -> None:
            lines = view.progress.add(event)
            if isinstance(event, HostResult):
                view.last_result = time.monotonic()
            elif isinstance(event, TaskStarted):
                view.task_since = time.monotonic()
            if done := view.finished():
                live.console.print(done)
            for line in lines:
                failed = " failed: " in line or " unreachable: " in line or line.startswith(BLOCKED)
                if failed or verbosity or "\n" in line:
                    stamp = f"[{view.elapsed:6.1f}s] "
                    live.console.print(Text(stamp + printable(line), style="red" if failed else ""))

        yield watch
        if done := view.finished(last=True):
            live.console.print(done)


@contextmanager
def _inspecting(view: _View, inspect: Inspect | None) -> Iterator[None]:
    """Ask next to the run: it waits for no answer."""
    over = threading.Event()

    def follow() -> None:
        while inspect and not over.wait(_INSPECT_S):
            view.follow(inspect)

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield
    finally:
        # a node that hangs does not hold up the end of the run
        over.set()


class _Terminal:
    """A terminal that may be closed while the run continues: what follows the run has to be done then as well."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard(self._stream)


def _duration(seconds: float, digits: int = 1) -> str:
    """`3.2 s`, and from two minutes on `6 min 43 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.{digits}f} s" if minutes < 2 else f"{minutes} min {rest} s"


@dataclass(slots=True)
class _View:
    total: int | None
    progress: Progress
    last_result: float = field(default_factory=time.monotonic)
    task_since: float = field(default_factory=time.monotonic)
    _started: float = field(default_factory=time.monotonic)
    # the component that runs, since when, and how many nodes had failed before it
    _component: str = ""
    _since: float = field(default_factory=time.monotonic)
    _failed: int = 0
    # what a node is doing in the task that began then
    _detail: tuple[float, str] = (0.0, "")
    _spinner: Spinner = field(default_factory=lambda: Spinner("line" if os.environ.get("TERM") == "linux" else "dots"))

    @property
    def _waits(self) -> float:
        """Seconds since a node has ended the task."""
        return time.monotonic() - self.last_result

    def follow(self, inspect: Inspect) -> None:
        """Ask the node that the task waits for, where it takes long."""
        began, left = self.task_since, self.progress.left
        if left and (seconds := time.monotonic() - began) > _LONG_S:
            node = min(left)
            answer = inspect(node, seconds)
            self._detail = (began, f"{node} {answer}" if answer else "")

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def finished(self, *, last: bool = False) -> Text | None:
        """The line of a component that has ended, with its seconds; it stays when the view is gone."""
        component, now = self._component, time.monotonic()
        if component == self.progress.component and not last:
            return None
        taken, failed = now - self._since, len(self.progress.failed)
        good = failed == self._failed
        self._component, self._since, self._failed = self.progress.component, now, failed
        if not component or component in _UNSEEN:
            return None
        signs = "ok" if os.environ.get("TERM") == "linux" else "✓", "x" if os.environ.get("TERM") == "linux" else "✗"
        line = Text(f"{signs[0] if good else signs[1]} ", style="green" if good else "red")
        return line.append(printable(component), style="bold").append(f"  {_duration(taken)}", style="dim")

    def __rich__(self) -> RenderableType:
        progress = self.progress
        minutes, seconds = divmod(int(self.elapsed), 60)
        first = Table.grid(padding=(0, 1), expand=True)
        first.add_column(width=1)
        first.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        first.add_column(justify="right", no_wrap=True)
        where = Text(progress.component or "starting", style="bold")
        if progress.task:
            where.append(f"  {progress.doing}", style="")
        first.add_row(self._spinner, where, Text(f"{minutes:02d}:{seconds:02d}", style="cyan"))
        return Group(first, self._second_line())

    def _second_line(self) -> RenderableType:
        progress = self.progress
        hosts = max(len(progress.started), len(progress.done)) or self.total or 0
        line = Table.grid(padding=(0, 1))
        line.add_column(width=1)
        share = progress.share
        whole = f"{share:4.0%}  " if share is not None else ""
        completed = share if share is not None else len(progress.done) / max(hosts, 1)
        text = Text(f"{whole}{len(progress.done)} of {amount(hosts, 'node')}", style="dim")
        if self._waits > _LATE_S and (late := progress.waiting):
            text.append("  waits for ", style="dim").append(
                f"{fold(late)} ({_duration(self._waits, 0)})", style="yellow"
            )
        began, detail = self._detail
        if detail and began == self.task_since:
            text.append(f"  {detail}", style="dim")
        for status, word in ((Status.FAILED, "failed"), (Status.UNREACHABLE, "no answer")):
            if lost := progress.lost(status):
                text.append(f"  {word}: ", style="red").append(fold(lost), style="bold red")
        line.add_row(
            "",
            ProgressBar(total=1.0, completed=completed, width=24, complete_style="cyan", finished_style="green"),
            text,
        )
        return line

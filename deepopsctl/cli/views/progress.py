"""Progress of a run for a person: a live view on a terminal, one plain line a task elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deepopsctl.cli.output import info
from deepopsctl.run.events import Event, Output
from deepopsctl.run.progress import Progress

Watch = Callable[[Event], None]


@contextmanager
def show_progress(total: int | None, verbosity: int = 0) -> Iterator[Watch]:
    """What to hand to the runner as `on_event`. `total` nodes take part, or None where only Ansible knows."""
    if verbosity > 2:
        yield _ansible_output
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from deepopsctl.cli.views.live import live_view

        with live_view(total, verbosity) as watch:
            yield watch
    else:
        yield plain_lines(info)


def plain_lines(write: Callable[[str], None]) -> Watch:
    """One line for every task that has ended: `[   3.2s] slurm: Install packages: 3 nodes ok, 2 changed`."""
    progress, started = Progress(), time.monotonic()

    def watch(event: Event) -> None:
        for line in progress.add(event):
            write(f"[{time.monotonic() - started:6.1f}s] {line}")

    return watch


def _ansible_output(event: Event) -> None:
    if isinstance(event, Output):
        info(event.text)

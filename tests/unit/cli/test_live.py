"""The live view, and a terminal that is closed meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from pathlib import Path

import click
import pytest

from deepopsctl.cli.output import info
from deepopsctl.cli.views import live
from deepopsctl.cli.views.live import live_view
from deepopsctl.run.events import HostResult, HostStarted, Status, TaskStarted


def printed_on(terminal: int) -> str:
    """All that was written to the other side, which is closed; the kernel hands it over piece by piece."""
    pieces = []
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 100_000):
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_what_follows_a_run_is_done_without_a_terminal_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped burn-in cancels its jobs then."""
    terminal, own = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(own, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with live_view(1) as watch:
            os.close(terminal)
            watch(HostResult("gpu01", "slurm", "", "Install", Status.FAILED, 1.0, message="broken"))
        info("cancelling its jobs")
        assert Path(f"/proc/self/fd/{stream.fileno()}").readlink() == Path(os.devnull)


def test_a_component_that_has_ended_stays_with_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, own = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with os.fdopen(own, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with live_view(1) as watch:
            for component, status in (("nvidia", Status.OK), ("storage", Status.FAILED), ("slurm", Status.OK)):
                watch(TaskStarted(component, "Play", "Install", 1.0))
                watch(HostResult("gpu01" if status is Status.OK else "gpu02", component, "", "Install", status, 1.0))
    shown = click.unstyle(printed_on(terminal))
    os.close(terminal)

    assert [re.search(rf"{sign} {name}  \d+\.\d s", shown) is not None
            for sign, name in (("✓", "nvidia"), ("✗", "storage"), ("✓", "slurm"))] == [True] * 3  # fmt: skip


def test_a_long_task_shows_what_the_packages_of_a_node_are_at(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, own = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(live, "_LONG_S", 0.0)
    monkeypatch.setattr(live, "_INSPECT_S", 0.01)
    asked = threading.Event()

    def inspect(node: str, _seconds: float) -> str:
        if asked.is_set():
            shown.set()
        asked.set()
        return f"unpacks libpmix2 of {node}"

    shown = threading.Event()
    with os.fdopen(own, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with live_view(2, inspect=inspect) as watch:
            watch(TaskStarted("slurm", "Play", "Install", 1.0))
            watch(HostStarted("gpu01", "Install"))
            watch(HostStarted("gpu02", "Install"))
            watch(HostResult("gpu01", "slurm", "", "Install", Status.OK, 1.0))
            assert shown.wait(20)
    text = click.unstyle(printed_on(terminal))
    os.close(terminal)

    assert "gpu02 unpacks libpmix2 of gpu02" in text

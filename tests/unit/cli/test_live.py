"""The live view, and a terminal that is closed meanwhile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deepopsctl.cli.output import info
from deepopsctl.cli.views.live import live_view
from deepopsctl.run.events import HostResult, Status


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

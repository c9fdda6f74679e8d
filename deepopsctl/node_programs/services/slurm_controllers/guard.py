"""End a slurmctld that may not know that another one is in control.

One that hangs, or is cut off from its storage, is replaced by the next controller. When it continues, it would take
control back with the jobs that it remembers, and those that came meanwhile would be lost. It is killed before the
others take over, and starts again with the state that is saved.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Callable, NamedTuple

from ..._shared import command
from . import heartbeat
from .heartbeat import Heartbeat

UNIT = "slurmctld.service"
# of SlurmctldTimeout: the others wait for all of it
SHARE = 0.7
INTERVAL_S = 0.25
# how often systemd is asked for slurmctld's process
ASK_S = 2.0


class Process(NamedTuple):
    """A process that is not another one with the same number."""

    pid: int
    started: str


class Watch:
    """What the guard of one controller has seen."""

    def __init__(self, index: int) -> None:
        self._index = index
        # the longest that this process may be silent: it has read slurm.conf at some time of its life
        self._limit_s = 0.0
        self._process: Process | None = None
        self._beat: Heartbeat | None = None
        # when this process last showed that it is in control
        self._claimed: float | None = None

    def reason_to_end(self, process: Process | None, beat: Heartbeat | None, timeout_s: float, now: float) -> str:
        """Why this controller's slurmctld must not continue; '' where it may.

        `process` is None while none runs, `beat` is None while the file can't be read; `timeout_s` is SlurmctldTimeout.
        """
        if process != self._process:
            self._process, self._claimed, self._limit_s = process, None, 0.0
        self._limit_s = max(self._limit_s, SHARE * timeout_s)
        if beat is not None and beat != self._beat:
            if self._beat is not None and beat.number == self._index and process:
                self._claimed = now
            self._beat = beat
        if process is None or self._claimed is None or self._beat is None:
            return ""
        if self._beat.number != self._index:
            return f"controller {self._beat.number + 1} has taken over"
        silent_s = now - self._claimed
        return f"it has shown no sign of life for {silent_s:.0f} s" if silent_s > self._limit_s else ""


class Reader:
    """Reads heartbeats in a thread of its own: storage that hangs must not stop the guard."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.beat: Heartbeat | None = None

    def start(self) -> None:
        """Read from now on."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.beat = heartbeat.read(self._directory)
            time.sleep(INTERVAL_S)


def running() -> Process | None:
    """The slurmctld that systemd has as active; None for one that stops, or none."""
    shown = command.run(["systemctl", "show", "--property=ActiveState,MainPID", UNIT], 10)
    facts: dict[str, str] = dict(line.split("=", 1) for line in shown.output.splitlines() if "=" in line)
    pid = int(facts.get("MainPID") or 0)
    if facts.get("ActiveState") != "active" or not pid:
        return None
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            # the name in parentheses may have blanks
            return Process(pid, stream.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None


def now() -> float:
    """A clock that can't be set, and that continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def guard(directory: str, index: int, log: Callable[[str], None]) -> None:
    """Watch for ever."""
    watch, reader = Watch(index), Reader(directory)
    reader.start()
    process, timeout_s, asked = running(), heartbeat.timeout_s(), now()
    while True:
        time.sleep(INTERVAL_S)
        if now() - asked >= ASK_S:
            process, timeout_s, asked = running(), heartbeat.timeout_s(), now()
        reason = watch.reason_to_end(process, reader.beat, timeout_s, now())
        # what systemd says now: it may be stopping, or be another one
        if reason and process and process == running():
            log(f"slurmctld (process {process.pid}) is killed: {reason}")
            os.kill(process.pid, signal.SIGKILL)
            process, asked = None, now()

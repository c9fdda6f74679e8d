"""Look after look, each written down for node exporter; what nobody keeps up to date is not left there."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Optional

from .notifying import notify
from .snapshot import SlurmReader, Snapshot
from .textfile import remove, write


class Daemon:
    """Runs until it is told to stop."""

    def __init__(self, slurm: SlurmReader, path: Path, interval_s: float) -> None:
        self._slurm = slurm
        self._path = path
        self._interval_s = interval_s
        self._reported: tuple[str, ...] = ()

    def run(self) -> None:
        """Look, write, wait; the file is gone at the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        message = "READY=1\nWATCHDOG=1"
        try:
            while True:
                started = time.monotonic()
                snapshot = self._slurm.read_snapshot(time.time())
                write(self._path, snapshot.text)
                self._log_problems(snapshot)
                notify(message)
                message = "WATCHDOG=1"
                # a look that took long is followed by a pause all the same: Slurm has other things to do
                took = time.monotonic() - started
                time.sleep(max(self._interval_s - took, min(took, self._interval_s)))
        finally:
            remove(self._path)

    def _log_problems(self, snapshot: Snapshot) -> None:
        """To the journal, once for each change."""
        if snapshot.problems != self._reported:
            sys.stderr.write("; ".join(snapshot.problems or ("Slurm answers again",)) + "\n")
            sys.stderr.flush()
            self._reported = snapshot.problems


def _stop(number: int, frame: Optional[FrameType]) -> None:
    """Wherever it is: a question to Slurm is given up, not waited for."""
    del number, frame
    raise SystemExit(0)

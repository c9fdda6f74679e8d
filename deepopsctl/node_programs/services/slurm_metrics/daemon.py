"""The main loop: query Slurm, write metrics for node exporter, and remove them at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from ..._shared import atomic_file
from .snapshot import SlurmReader, Snapshot

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Daemon:
    """Runs until it is stopped."""

    def __init__(self, slurm: SlurmReader, path: Path, interval_s: float) -> None:
        self._slurm = slurm
        self._path = path
        self._interval_s = interval_s
        self._reported: tuple[str, ...] = ()

    def export_until_stopped(self) -> None:
        """Query, write, wait; the file is removed at the end."""
        for number in _STOPPING:
            signal.signal(number, _stop)
        message = "READY=1\nWATCHDOG=1"
        try:
            while True:
                started = time.monotonic()
                snapshot = self._slurm.read_snapshot(time.time())
                with _undisturbed():
                    atomic_file.write(self._path, snapshot.text)
                self._log_problems(snapshot)
                notify(message)
                message = "WATCHDOG=1"
                # pause also after a slow query: Slurm has other things to do
                took = time.monotonic() - started
                time.sleep(max(self._interval_s - took, min(took, self._interval_s)))
        finally:
            atomic_file.discard(self._path)

    def _log_problems(self, snapshot: Snapshot) -> None:
        """Log problems when they have changed."""
        if snapshot.problems != self._reported:
            sys.stderr.write("; ".join(snapshot.problems or ("Slurm answers again",)) + "\n")
            sys.stderr.flush()
            self._reported = snapshot.problems


def notify(message: str) -> None:
    """Notify systemd: READY=1 once, WATCHDOG=1 after each round. No effect outside of a unit."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return
    if where.startswith("@"):
        where = f"\0{where[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message.encode(), where)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Stop only afterwards: a file that was half written would stay."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop at once, also during a query."""
    del number, frame
    raise SystemExit(0)

"""Early ends of a run: Ctrl-C, SIGTERM, a closed terminal, or a timeout."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from deepopsctl.run.outcome import Verdict

# The supervisor needs about a second; after this time runner's own SIGKILL ends it
PATIENCE_S = 8.0


class Interrupts:
    """Handles the signals during a run and restores the handlers: runner itself would not restore them."""

    def __init__(self, timeout: float = 0) -> None:
        self.reason: Verdict | None = None
        self._deadline = time.monotonic() + timeout if timeout else None
        self._before: dict[int, Any] = {}
        self._ended = False

    def __enter__(self) -> Interrupts:
        # only the main thread may set handlers; in other threads the caller stops the run
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end_if_wanted(self, pid_file: Path) -> bool:
        """End Ansible if there is a reason to; runner asks this several times a second."""
        if not self.reason and self._deadline is not None and time.monotonic() > self._deadline:
            self.reason = Verdict.TIMEOUT
        if self.reason and not self._ended:
            self._ended = True
            _end(pid_file)
        return self.reason is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.reason = self.reason or Verdict.INTERRUPTED


def _end(pid_file: Path) -> None:
    """Ask the supervisor to end everything below it, and wait until it has."""
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            # it stays a zombie, for runner to read its exit code
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
        except ChildProcessError:
            return
        time.sleep(0.02)

"""Detect a closed connection: sshd does not end the program then, it only closes its pipes."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType
from typing import Callable

_STDOUT = 1


def watch(leave: Callable[[], None], stdout: int = _STDOUT) -> None:
    """When the other side of our output is gone (Ctrl-C, a cut connection), call `leave` and end this process."""
    signal.signal(signal.SIGTERM, _end)
    poller = select.poll()
    # errors and hangups are always reported
    poller.register(stdout, 0)

    def wait() -> None:
        while not any(event & (select.POLLERR | select.POLLHUP) for _number, event in poller.poll()):
            pass
        try:
            leave()
        finally:
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)

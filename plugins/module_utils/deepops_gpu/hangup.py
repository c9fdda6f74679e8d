"""Detect a closed connection: sshd does not end the program then, it only closes its pipes."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from types import FrameType
from typing import Callable, Optional

_STDOUT = 1
# the first leaves the work, the second the wait for its threads, the third whatever waits after that
_ATTEMPTS, _GRACE_S = 3, 10.0


def watch(leave: Callable[[], None], stdout: int = _STDOUT) -> None:
    """When the other side of our output is gone (Ctrl-C, a cut connection), call `leave` and end this process.

    The main thread ends it, where it is: Ansible's wrapper around a module removes its folder only on that way.
    """
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
            _end_main_thread()

    threading.Thread(target=wait, daemon=True).start()


def _end(_number: int, _frame: Optional[FrameType]) -> None:
    raise SystemExit(1)


def _end_main_thread() -> None:
    """Interrupt whatever it waits for. The process ends with it, or is ended without it after some attempts."""
    main = threading.main_thread().ident
    for _attempt in range(_ATTEMPTS):
        if main is not None:
            signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(_GRACE_S)
    os._exit(1)

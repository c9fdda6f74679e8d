"""Notice that nobody listens any more: where a connection is cut, sshd ends no program, it only closes its pipes."""

from __future__ import annotations

import os
import select
import threading
from typing import Callable

_STDOUT = 1


def watch(leave: Callable[[], None], stdout: int = _STDOUT) -> None:
    """When the other side of our output is gone (Ctrl-C, a cut connection), call `leave` and end this process."""
    poller = select.poll()
    # errors and hangups are always told
    poller.register(stdout, 0)

    def wait() -> None:
        while not any(event & (select.POLLERR | select.POLLHUP) for _number, event in poller.poll()):
            pass
        try:
            leave()
        finally:
            # no thread of ours is waited for: their jobs are cancelled
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

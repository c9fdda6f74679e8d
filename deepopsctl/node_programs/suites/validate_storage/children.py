"""Run something in a process of its own with a time limit: one that waits for a dead server can't be stopped."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time
from typing import Any, Callable

from ..._shared.waiting import wait_until

# how long a stopped process may take to go, before it is left behind
_GOING_S = 1.0
Result = dict[str, Any]


class Child:
    """A started process, and its answer; with `stay` it continues after its answer, until it is ended."""

    def __init__(self, do: Callable[[], Result], stay: Callable[[], None] | None = None) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            _live(do, stay, writing, reading)
        os.close(writing)
        # both sides set it: whichever comes first, it is done before the group is ended
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)
        self._reading, self._output = reading, b""

    def result(self, limit: float) -> Result:
        """Its answer: what it found, `error` with `errno`, or `hung` where there is none within `limit` seconds."""
        until = time.monotonic() + limit
        while b"\n" not in self._output:
            ready, _, _ = select.select([self._reading], [], [], max(0, until - time.monotonic()))
            if not ready:
                return {"hung": round(limit, 1)}
            data = os.read(self._reading, 65536)
            if not data:
                return {"error": "the process ended without an answer", "errno": ""}
            self._output += data
        answer: Result = json.loads(self._output)
        return answer

    def end(self) -> bool:
        """Stop it; False where the kernel does not let it go."""
        os.close(self._reading)
        with contextlib.suppress(ProcessLookupError):
            # a group of its own: what it started goes with it
            os.killpg(self.pid, signal.SIGKILL)
        return wait_until(self._has_ended, _GOING_S, 0.01)

    def _has_ended(self) -> bool:
        try:
            return bool(os.waitpid(self.pid, os.WNOHANG)[0])
        except ChildProcessError:
            return True


def attempt(do: Callable[[], Result], limit: float) -> Result:
    """Do it in a child, wait, end the child."""
    child = Child(do)
    try:
        return child.result(limit)
    finally:
        child.end()


def _live(do: Callable[[], Result], stay: Callable[[], None] | None, writing: int, reading: int) -> None:
    """The child's whole life; it never returns into the parent's code."""
    code = 1
    try:
        os.close(reading)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            answer = do()
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "")
            where = f" ({error.filename})" if error.filename else ""
            answer = {"error": (error.strerror or str(error)) + where, "errno": name}
        except Exception as error:  # noqa: BLE001 (reported, not lost with the process)
            answer = {"error": repr(error), "errno": ""}
        os.write(writing, json.dumps(answer).encode() + b"\n")
        if stay:
            stay()
        code = 0
    finally:
        os._exit(code)

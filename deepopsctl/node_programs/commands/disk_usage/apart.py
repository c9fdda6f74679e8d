"""Query each file system in its own process, in parallel, with a time limit.

A process that waits for an unreachable server can't be killed: it is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Callable

from .rows import USER, Amount, FileSystem, Row, Usage

Ask = Callable[[FileSystem], list[Row]]


def ask_all(where: Sequence[FileSystem], ask: Ask, limit_s: float, who: str) -> list[Row]:
    """The rows of all file systems in order; one without an answer has a row with the problem."""
    children = [_Child(each, ask) for each in where]
    deadline = time.monotonic() + limit_s
    with selectors.DefaultSelector() as waiting:
        for child in children:
            waiting.register(child.pipe, selectors.EVENT_READ, child)
        while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                if key.data.read():
                    waiting.unregister(key.fileobj)
    return [row for child in children for row in child.finish(limit_s, who)]


class _Child:
    def __init__(self, where: FileSystem, ask: Ask) -> None:
        self._where = where
        self._text = b""
        self._has_ended = False
        self.pipe, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.pipe)
            _answer(where, ask, writing)
        os.close(writing)

    def read(self) -> bool:
        """Take what is there; True at the end."""
        chunk = os.read(self.pipe, 1 << 16)
        self._text += chunk
        self._has_ended = not chunk
        return self._has_ended

    def finish(self, limit_s: float, who: str) -> list[Row]:
        os.close(self.pipe)
        if not self._has_ended:
            self._stop()
            return [self._without(f"no answer in {limit_s:g} s", who)]
        os.waitpid(self._pid, 0)
        try:
            return [_row(each) for each in json.loads(self._text.decode("utf-8"))]
        except ValueError:
            return [self._without("the question ended without an answer", who)]

    def _stop(self) -> None:
        """It ends the tool that it runs, and then itself; one that hangs in the kernel stays."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, number)
            for _ in range(20):
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    return
                time.sleep(0.01)

    def _without(self, problem: str, who: str) -> Row:
        return Row(self._where.name, self._where.path, USER, who, problem=problem)


def _answer(where: FileSystem, ask: Ask, writing: int) -> None:
    """In the child: never comes back."""
    status = 1
    try:
        # an exception, so that command.run() ends what it started
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        with os.fdopen(writing, "w", encoding="utf-8", errors="surrogateescape") as stream:
            json.dump([asdict(row) for row in ask(where)], stream)
        status = 0
    finally:
        # the parent's own clean-up is the parent's
        os._exit(status)


def _row(fields: dict[str, Any]) -> Row:
    usage = fields.pop("usage")
    return Row(usage=Usage(Amount(**usage["space"]), Amount(**usage["files"]), usage["grace"]), **fields)

"""One ssh command on each of many nodes, side by side: a node that is silent costs its own time and no other's."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

# more than any node answers; root of a node could send without end
MOST_BYTES = 64 << 20
# what it costs to look at a hundred processes that often does not show
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Call:
    """What one node is asked: the whole ssh command, and its input."""

    node: str
    command: Sequence[str]
    data: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """How the command ended: its exit status, None where the time was over or more came than any answer has."""

    status: int | None
    output: bytes = b""
    errors: str = ""


def ask_all(
    calls: Iterable[Call], *, timeout_s: float, width: int, stopped: Callable[[], bool] = lambda: False
) -> dict[str, Answer]:
    """The answers by node; each has `timeout_s` from the start of its own ssh, and `width` are asked at a time.

    Ends early, with what there is by then, where `stopped` says so.
    """
    waiting, running, answers = list(reversed(list(calls))), list[_Asked](), dict[str, Answer]()
    try:
        while (waiting or running) and not stopped():
            while waiting and len(running) < width:
                running.append(_Asked(waiting.pop(), timeout_s))
            for asked in [each for each in running if each.has_ended()]:
                running.remove(asked)
                answers[asked.call.node] = asked.answer()
            time.sleep(POLL_S)
    finally:
        for asked in running:
            asked.answer()
    return answers


@dataclass(slots=True)
class _Asked:
    """A running ssh. Its streams are files: the process that keeps a connection open would hold a pipe, too."""

    call: Call
    timeout_s: float
    _streams: tuple[IO[bytes], IO[bytes], IO[bytes]] = field(init=False)
    _process: subprocess.Popen[bytes] = field(init=False)
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        files = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115 (closed with the answer)
        question, output, errors = self._streams = (next(files), next(files), next(files))
        question.write(self.call.data)
        question.seek(0)
        # a session of its own: no terminal to ask on
        self._process = subprocess.Popen(
            self.call.command, stdin=question, stdout=output, stderr=errors, start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        self._until = time.monotonic() + self.timeout_s

    def has_ended(self) -> bool:
        """Whether the answer is there, or not worth waiting for."""
        ended = self._process.poll() is not None or time.monotonic() > self._until
        return ended or self._is_too_much()

    def answer(self) -> Answer:
        """What it is; a process that still runs is ended."""
        _, output, errors = self._streams
        try:
            if self._process.poll() is None or self._is_too_much():
                self._process.kill()
                self._process.wait()
                return Answer(None)
            output.seek(0)
            errors.seek(0)
            return Answer(self._process.returncode, output.read(), errors.read().decode(errors="replace"))
        finally:
            for stream in self._streams:
                stream.close()

    def _is_too_much(self) -> bool:
        return any(os.fstat(stream.fileno()).st_size > MOST_BYTES for stream in self._streams[1:])

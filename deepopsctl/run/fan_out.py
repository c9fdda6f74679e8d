"""One ssh command on each of many nodes, side by side: a node that is silent costs its own time and no other's."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

# More than a node says of itself; root of a node could send without end. Slurm's answer grows with its jobs.
MOST_BYTES, MOST_BYTES_OF_SLURM = 4 << 20, 64 << 20
# of all answers together, which are in files and in memory: so much, and so much more for each node
TOGETHER, TOGETHER_EACH = 128 << 20, 128 << 10
# what it costs to look at a hundred processes that often does not show
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Call:
    """What one node is asked: the whole ssh command, its input, and what it may take, in seconds and bytes.

    `begin_s` is how long it may say nothing at all; without it, as long as the whole call.
    """

    node: str
    command: Sequence[str]
    data: bytes
    timeout_s: float
    most: int = MOST_BYTES
    begin_s: float = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """How the command ended: its exit status, None where it was ended here, because its time was over or it sent more
    than any answer has; what it had printed; when it began and ended, in seconds since the epoch.
    """

    status: int | None
    output: bytes = b""
    errors: str = ""
    late: bool = False
    began: float = 0
    ended: float = 0


def ask_all(calls: Iterable[Call], *, width: int, stopped: Callable[[], bool] = lambda: False) -> dict[str, Answer]:
    """The answers by node; each has its time from the start of its own ssh, and `width` are asked at a time.

    Ends early, with what there is by then, where `stopped` says so.
    """
    waiting, running, answers = list(reversed(list(calls))), list[_Asked](), dict[str, Answer]()
    room = TOGETHER + TOGETHER_EACH * len(waiting)
    try:
        while (waiting or running) and not stopped():
            while waiting and len(running) < width:
                running.append(_Asked(waiting.pop()))
            for each in running:
                each.measure()
            if sum(each.size for each in running) > room:
                max(running, key=lambda each: each.size).refuse()
            for asked in [each for each in running if each.has_ended()]:
                running.remove(asked)
                answers[asked.call.node] = answer = asked.answer()
                room -= len(answer.output)
            time.sleep(POLL_S)
    finally:
        for asked in running:
            asked.answer()
    return answers


@dataclass(slots=True)
class _Asked:
    """A running ssh. Its streams are files: the process that keeps a connection open would hold a pipe, too."""

    call: Call
    _streams: tuple[IO[bytes], IO[bytes], IO[bytes]] = field(init=False)
    _process: subprocess.Popen[bytes] = field(init=False)
    _began: float = field(init=False)
    _started: float = field(init=False)
    # bytes that it had sent when it was last measured: a look at each of its files, hundreds of times a second
    size: int = 0
    _refused: bool = False

    def __post_init__(self) -> None:
        files = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115 (closed with the answer)
        question, output, errors = self._streams = (next(files), next(files), next(files))
        question.write(self.call.data)
        question.seek(0)
        self._began, self._started = time.time(), time.monotonic()
        # a session of its own: no terminal to ask on
        self._process = subprocess.Popen(
            self.call.command, stdin=question, stdout=output, stderr=errors, start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip

    def measure(self) -> None:
        """Look how much it has sent, and whether that is more than any answer has."""
        self.size = sum(os.fstat(stream.fileno()).st_size for stream in self._streams[1:])
        self._refused = self._refused or self.size > self.call.most

    def refuse(self) -> None:
        """Take no more of it."""
        self._refused = True

    def has_ended(self) -> bool:
        """Whether the answer is there, or not worth waiting for."""
        return self._process.poll() is not None or self._refused or self._is_late()

    def answer(self) -> Answer:
        """What it is; a process that still runs is ended."""
        ended = time.time()
        try:
            status = self._process.poll()
            if status is None:
                self._process.kill()
                self._process.wait()
            # what came since the last round
            self.measure()
            if self._refused:
                return Answer(None)
            output, errors = (self._text(stream) for stream in self._streams[1:])
            return Answer(status, output, errors.decode(errors="replace"), status is None, self._began, ended)
        finally:
            for stream in self._streams:
                stream.close()

    def _is_late(self) -> bool:
        taken = time.monotonic() - self._started
        return taken > self.call.timeout_s or (0 < self.call.begin_s < taken and not self.size)

    def _text(self, stream: IO[bytes]) -> bytes:
        stream.seek(0)
        return stream.read()

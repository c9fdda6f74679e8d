"""One ssh command on each of many nodes, side by side: a node that is silent costs its own time and no other's."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO

# More than a node says of itself; root of a node could send without end. Slurm's answer grows with its jobs.
MOST_BYTES, MOST_BYTES_OF_SLURM = 4 << 20, 64 << 20
# of all answers together, which are in files and in memory: so much, and so much more for each node
TOGETHER, TOGETHER_EACH = 128 << 20, 128 << 10
# between two looks at what runs: a few processes are looked at often, a hundred 20 times a second
POLL_S, POLL_EACH_S = 0.005, 0.0005
# how many may run where most have begun to answer and do something themselves: three files of ours for each
MOST_BEGUN = 200


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
    than any answer has; what it had printed; when it began and ended, in seconds since the epoch; and how many seconds
    it was kept waiting for a processor of this machine.
    """

    status: int | None
    output: bytes = b""
    errors: str = ""
    late: bool = False
    began: float = 0
    ended: float = 0
    starved_s: float = 0


def starved_s(pid: int) -> float:
    """Seconds in which a process could have run and had to wait for a processor; 0 where this kernel does not count."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0


def ask_all(calls: Iterable[Call], *, width: int, stopped: Callable[[], bool] = lambda: False) -> dict[str, Answer]:
    """The answers by node; each has its time from the start of its own ssh, and `width` are connected to at a time.

    A node that has begun to answer costs this machine next to nothing, so the next one need not wait for its end.
    The time in which this machine was too busy to run that ssh is not the node's. A call is taken from `calls` when its
    turn comes, and not kept: what all nodes read together may be large. Ends early, with what there is by then, where
    `stopped` says so.
    """
    waiting, running, answers = iter(calls), list[_Asked](), dict[str, Answer]()
    room = TOGETHER
    try:
        while not stopped():
            silent = sum(not each.size for each in running)
            for call in islice(waiting, max(0, min(width - silent, max(width, MOST_BEGUN) - len(running)))):
                running.append(_Asked(call))
                room += TOGETHER_EACH
            if not running:
                break
            for each in running:
                each.measure()
            if sum(each.size for each in running) > room:
                max(running, key=lambda each: each.size).refuse()
            for asked in [each for each in running if each.has_ended()]:
                running.remove(asked)
                answers[asked.call.node] = answer = asked.answer()
                room -= len(answer.output)
            time.sleep(max(POLL_S, POLL_EACH_S * len(running)))
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
    _starved_s: float = 0

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
        return self._has_exited() or self._refused or self._is_late()

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
            text = errors.decode(errors="replace")
            return Answer(status, output, text, status is None, self._began, ended, self._starved_s)
        finally:
            for stream in self._streams:
                stream.close()

    def _is_late(self) -> bool:
        has_begun = self.size or not self.call.begin_s
        limit_s = self.call.timeout_s if has_begun else min(self.call.begin_s, self.call.timeout_s)
        taken = time.monotonic() - self._started
        return taken > limit_s and taken - starved_s(self._process.pid) > limit_s

    def _has_exited(self) -> bool:
        # without reaping it, so that the kernel still has its counts
        if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        self._starved_s = starved_s(self._process.pid)
        return True

    def _text(self, stream: IO[bytes]) -> bytes:
        stream.seek(0)
        return stream.read()

"""A share of the node's memory: patterns are written, stay there for a while, and must still be there."""

from __future__ import annotations

import hashlib
import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

MIB = 2**20
CHUNK = 4 * MIB
# of what the job may use
MEMORY_SHARE = 0.7
# more than any stride between chunks, so that each has its own piece of the noise
_SLACK = 65_536
_BLOCK = 4096
_BYTES = (b"\x00", b"\xff", b"\xaa", b"\x55")
PATTERNS = len(_BYTES) + 1
# reserved for everything else on the node, whatever share was requested
_LEFT_SHARE, _LEFT_BYTES = 0.10, 512 * MIB


class WrongMemoryError(Exception):
    """A byte was not what had been written to it."""


class Memory:
    """Up to `limit` bytes of this process, allocated piece by piece; `step()` checks one piece and rewrites it."""

    def __init__(self, limit: int, room: Callable[[], bool] | None = None) -> None:
        self._limit = limit
        self._room = room or node_has_room
        self._noise = hashlib.shake_256(b"deepopsctl").digest(CHUNK + _SLACK)
        self._chunks: list[Any] = []
        self._patterns: list[int] = []
        self._at = 0
        self.verified = 0

    @property
    def size(self) -> int:
        """Bytes allocated so far."""
        return len(self._chunks) * CHUNK

    def step(self) -> bool:
        """Verify one piece and write its next pattern, or take another piece; False where there is no memory at all."""
        if self._at == len(self._chunks):
            if self.size + CHUNK <= self._limit and self._room():
                self._chunks.append(mmap.mmap(-1, CHUNK))
                self._patterns.append(0)
                self._write(self._at)
                self._at += 1
                return True
            # all that may be had is had: from the beginning
            self._at = 0
        if not self._chunks:
            return False
        self.verify(self._at)
        self._patterns[self._at] = (self._patterns[self._at] + 1) % PATTERNS
        self._write(self._at)
        self._at += 1
        return True

    def verify(self, number: int) -> None:
        """WrongMemoryError where a piece is not as it was written."""
        chunk, expected = self._chunks[number], self._expected(number)
        actual = chunk[:]
        if actual != expected:
            wrong = list(_differences(actual, expected))
            again = "still wrong" if chunk[wrong[0]] != expected[wrong[0]] else "right"
            raise WrongMemoryError(
                f"{len(wrong)} of {CHUNK} bytes are wrong, the first is 0x{actual[wrong[0]]:02x} instead "
                f"of 0x{expected[wrong[0]]:02x} ({again} when read again)"
            )
        self.verified += CHUNK

    def finish(self, seconds: float) -> int:
        """Verify what was written last, as much as the time allows and one piece at least; how many bytes."""
        ends, before = time.monotonic() + seconds, self.verified
        for number in range(len(self._chunks)):
            if number and time.monotonic() > ends:
                break
            self.verify(number)
        return self.verified - before

    def self_test(self) -> None:
        """Plant an error: a test that does not find it is none."""
        if not self._chunks:
            return
        chunk, place = self._chunks[0], CHUNK // 3
        good = chunk[place]
        chunk[place] = good ^ 0x10
        try:
            self.verify(0)
        except WrongMemoryError:
            chunk[place] = good
        else:
            raise WrongMemoryError("the memory test did not find the error that it had planted")

    def _write(self, number: int) -> None:
        self._chunks[number][:] = self._expected(number)

    def _expected(self, number: int) -> bytes:
        pattern = self._patterns[number]
        if pattern < len(_BYTES):
            return _BYTES[pattern] * CHUNK
        # pieces that were mixed up (a wrong address) would have each other's noise
        start = number * 8 % _SLACK
        return self._noise[start : start + CHUNK]


def _differences(actual: bytes, expected: bytes) -> Iterator[int]:
    """Where two pieces differ; a block at a time, as most blocks don't."""
    for start in range(0, len(expected), _BLOCK):
        one, other = actual[start : start + _BLOCK], expected[start : start + _BLOCK]
        if one != other:
            yield from (start + place for place in range(len(other)) if one[place] != other[place])


def node_has_room(meminfo: Path = Path("/proc/meminfo")) -> bool:
    """Whether the node has memory to spare: a burn-in must not make the out-of-memory killer end other processes."""
    total, available = memory_of_node(meminfo)
    return available > max(_LEFT_SHARE * total, _LEFT_BYTES)


def memory_of_node(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """Bytes: all, and what could be had without swapping."""
    sizes = {}
    for line in meminfo.read_text(encoding="ascii").splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[key] = int(words[0]) * 1024
    return sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)

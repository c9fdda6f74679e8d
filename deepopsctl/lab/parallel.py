"""A thread pool that works on several nodes at once and can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

# podman takes a lock for most of a start, and the nodes' own boot wants the CPUs too.
AT_ONCE = 4

T = TypeVar("T")
R = TypeVar("R")


class NodePool:
    """Runs the same work on many nodes; `stopped` signals waiting work to stop."""

    def __init__(self) -> None:
        self.stopped = Event()
        self._pool = ThreadPoolExecutor(max_workers=AT_ONCE)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply `work` to all items and return the results in order; the first failure is raised."""
        return list(self._pool.map(work, items))

    def halt(self) -> None:
        """Start no more work; running work continues. Returns at once."""
        self.stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for running work."""
        self._pool.shutdown(wait=True, cancel_futures=True)

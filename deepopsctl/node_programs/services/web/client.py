"""Ask the agent, from JupyterHub; and read the states of all notebooks at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from . import AGENT
from .offer import RefusedError

PATIENCE_S = 90
# how old what is known of jobs may be
FRESH_S = 2.0


class SilentError(Exception):
    """The agent, or Slurm behind it, does not answer."""


class BusyError(RefusedError):
    """Too much is asked at a time, by this user or by all: nothing is known of what was asked."""


class Turns:
    """Questions at a time, each a process of the agent's: others wait a while; too many of one user are refused."""

    IN_ALL, OF_ONE = 24, 6
    # who waits for longer has closed the page, and its answer would cost the next one's time
    WAIT_S = 20.0

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(self.IN_ALL)
        self._of: Counter[str] = Counter()

    @asynccontextmanager
    async def take(self, user: str) -> AsyncIterator[None]:
        """One of them. Raises BusyError."""
        if user and self._of[user] >= self.OF_ONE:
            raise BusyError("you ask too much at the same time: wait a moment, and load the page again")
        self._of[user] += 1
        try:
            try:
                await asyncio.wait_for(self._all.acquire(), self.WAIT_S)
            except asyncio.TimeoutError as error:
                raise BusyError("many users load these pages now: try again in a minute") from error
            try:
                yield
            finally:
                self._all.release()
        finally:
            self._of[user] -= 1
            if not self._of[user]:
                del self._of[user]


TURNS = Turns()


async def ask(what: str, user: str = "", path: str = AGENT, **more: Any) -> dict[str, Any]:
    """One answer. Raises RefusedError with a text for the user, and SilentError."""
    question = json.dumps({"ask": what, "user": user, **more}) + "\n"
    try:
        async with TURNS.take(user):
            line = await asyncio.wait_for(_exchange(path, question), PATIENCE_S)
        answer: dict[str, Any] = json.loads(line)
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise SilentError(f"{path}: {error or type(error).__name__}") from error
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    return answer


async def _exchange(path: str, question: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=32 << 20)
    try:
        writer.write(question.encode())
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()


class States:
    """The states of notebook jobs: however many are asked for at a time, Slurm is asked once."""

    def __init__(self, path: str = AGENT) -> None:
        self._path = path
        self._wanted: set[str] = set()
        self._known: dict[str, dict[str, str]] = {}
        self._at = 0.0
        self._lock = asyncio.Lock()

    async def of(self, job: str) -> dict[str, str] | None:
        """One job's state; None where Slurm knows it no more. Raises SilentError."""
        new = job not in self._wanted
        self._wanted.add(job)
        async with self._lock:
            if (new and job not in self._known) or time.monotonic() - self._at > FRESH_S:
                try:
                    self._known = (await ask("states", path=self._path, jobs=sorted(self._wanted)))["jobs"]
                except RefusedError as error:
                    raise SilentError(str(error)) from error
                self._at = time.monotonic()
        return self._known.get(job)

    def forget(self, job: str) -> None:
        """No one asks for it any more."""
        self._wanted.discard(job)

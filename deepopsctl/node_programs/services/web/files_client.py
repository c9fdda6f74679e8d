"""Ask the agent of files, from JupyterHub: what is sent and received goes through it piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

from . import FILES
from .client import SilentError, Turns
from .files import MissingError
from .offer import RefusedError

T = TypeVar("T")
# how long a file server may hang; of a transfer, each piece counts for itself
PATIENCE_S = 40
BLOCK = 1 << 18


class _FileTurns(Turns):
    """Transfers last: they take no turn of those who ask Slurm."""

    IN_ALL, OF_ONE = 48, 6


TURNS = _FileTurns()
# what waits for agents that hang: the loop itself holds on to no task
_waiting: set[asyncio.Task[None]] = set()


class Exchange:
    """One question that is under way. All of it raises SilentError where the agent does not answer in time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        """Send more."""
        self._writer.write(data)
        await _in_time(self._writer.drain(), PATIENCE_S)

    async def head(self) -> dict[str, Any]:
        """What it says. Raises RefusedError."""
        return _read(await _in_time(self._reader.readline(), PATIENCE_S))

    async def result(self) -> dict[str, Any]:
        """The same of what takes as long as its browser. Raises RefusedError."""
        return _read(await _in_time(self._reader.readline(), None))

    async def data(self, most: int = BLOCK) -> bytes:
        """What comes after that; b'' at the end."""
        return await _in_time(self._reader.read(most), PATIENCE_S)


def _read(line: bytes) -> dict[str, Any]:
    try:
        reply: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise SilentError(f"{FILES}: it ended without an answer") from error
    if "refused" in reply:
        raise (MissingError if reply.get("missing") else RefusedError)(reply["refused"])
    return reply


async def _in_time(what: Awaitable[T], limit_s: float | None) -> T:
    try:
        return await asyncio.wait_for(what, limit_s)
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise SilentError(f"{FILES}: {error or type(error).__name__}") from error


@asynccontextmanager
async def exchange(what: str, user: str, path: str = FILES, **more: Any) -> AsyncIterator[Exchange]:
    """Ask. Raises BusyError, SilentError.

    An agent that hangs in a file system keeps its user's turn until it ends: others have theirs.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(TURNS.take(user))
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=8 << 20)
        except OSError as error:
            raise SilentError(f"{path}: {error}") from error
        stack.callback(writer.close)
        asked = Exchange(reader, writer)
        try:
            await asked.say(json.dumps({"ask": what, "user": user, **more}).encode() + b"\n")
            yield asked
        except SilentError:
            task = asyncio.create_task(_ended(reader, writer, stack.pop_all()))
            _waiting.add(task)
            task.add_done_callback(_waiting.discard)
            raise


async def _ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stack: AsyncExitStack) -> None:
    async with stack:
        with suppress(OSError):
            writer.write_eof()
            while await reader.read(BLOCK):
                pass


async def ask(what: str, user: str, path: str = FILES, **more: Any) -> dict[str, Any]:
    """One answer. Raises RefusedError, BusyError, SilentError."""
    async with exchange(what, user, path, **more) as asked:
        return await asked.head()

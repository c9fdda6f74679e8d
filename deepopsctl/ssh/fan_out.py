"""One ssh command on each of many nodes, side by side: a node that is silent costs its own time and no other's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

# more than any node answers; root of a node could send without end
MOST_BYTES = 64 << 20
STOP_POLL_S = 0.2
_SSH_FAILED = 255


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

    @property
    def reached(self) -> bool:
        """Whether the node itself answered, by whatever status."""
        return self.status not in (None, _SSH_FAILED)


def ask_all(
    calls: Iterable[Call], *, timeout_s: float, width: int, stopped: Callable[[], bool] = lambda: False
) -> dict[str, Answer]:
    """The answers by node; each has `timeout_s` from the start of its own ssh, and `width` are asked at a time.

    Ends early, with what there is by then, where `stopped` says so.
    """
    answers: dict[str, Answer] = {}

    async def one(call: Call, places: asyncio.Semaphore) -> None:
        async with places:
            answers[call.node] = await _ask(call, timeout_s)

    async def everything() -> None:
        places = asyncio.Semaphore(width)
        tasks = {asyncio.create_task(one(call, places)) for call in calls}
        while tasks and not stopped():
            done, tasks = await asyncio.wait(tasks, timeout=STOP_POLL_S, return_when=asyncio.ALL_COMPLETED)
            for task in done:
                task.result()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(everything())
    return answers


async def _ask(call: Call, timeout_s: float) -> Answer:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *call.command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "LC_ALL": "C"}, start_new_session=True
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, errors, _ = await asyncio.gather(
                _read(cast(asyncio.StreamReader, process.stdout)),
                _read(cast(asyncio.StreamReader, process.stderr)),
                _write(cast(asyncio.StreamWriter, process.stdin), call.data),
            )
            if output is None or errors is None:
                return Answer(None)
            return Answer(await process.wait(), output, errors.decode(errors="replace"))
    except TimeoutError:
        return Answer(None)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _read(stream: asyncio.StreamReader) -> bytes | None:
    """All that comes, None where it is too much."""
    chunks, size = [], 0
    while chunk := await stream.read(1 << 16):
        size += len(chunk)
        if size > MOST_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


async def _write(stream: asyncio.StreamWriter, data: bytes) -> None:
    # a node that refuses the login reads nothing; its exit status says so
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()

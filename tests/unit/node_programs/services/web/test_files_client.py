"""How JupyterHub asks the agent of files: a real socket, whose other end hangs, or ends too soon."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.services.web import files_client
from deepopsctl.node_programs.services.web.client import BusyError, SilentError
from deepopsctl.node_programs.services.web.files import MissingError
from deepopsctl.node_programs.services.web.offer import RefusedError


def run(tmp_path: Path, answer: Any, ask: Any) -> Any:
    path = str(tmp_path / "files.sock")

    async def both() -> Any:
        files_client.TURNS = files_client._FileTurns()
        async with await asyncio.start_unix_server(answer, path):
            return await ask(path)

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b'{"refused": "no"}\n', RefusedError),
        (b'{"refused": "no", "missing": true}\n', MissingError),
        (b"", SilentError),
        (b'{"kind', SilentError),
    ],
)
def test_what_the_agent_refuses_is_refused_and_half_an_answer_is_none(
    tmp_path: Path, sent: bytes, error: type[Exception]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert json.loads(await reader.readline()) == {"ask": "inspect", "user": "alice", "place": ["home"]}
        writer.write(sent)
        writer.close()

    async def ask(path: str) -> None:
        with pytest.raises(error):
            await files_client.ask("inspect", "alice", path, place=["home"])

    run(tmp_path, answer, ask)


def test_an_agent_that_hangs_keeps_a_turn_of_its_user_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_client, "PATIENCE_S", 0.05)
    go = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if json.loads(await reader.readline())["user"] == "mallory":
            await go.wait()
        writer.write(b"{}\n")
        writer.close()

    async def ask(path: str) -> None:
        for _ in range(files_client.TURNS.OF_ONE):
            with pytest.raises(SilentError):
                await files_client.ask("inspect", "mallory", path)
        with pytest.raises(BusyError):
            await files_client.ask("inspect", "mallory", path)
        assert await files_client.ask("inspect", "alice", path) == {}
        go.set()
        await asyncio.gather(*files_client._waiting)
        assert await files_client.ask("inspect", "mallory", path) == {}

    run(tmp_path, answer, ask)

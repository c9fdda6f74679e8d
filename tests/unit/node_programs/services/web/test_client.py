"""How many questions the pages ask at a time: a real socket, whose other end answers when it is let."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.web import client
from deepopsctl.node_programs.services.web.client import BusyError, Turns
from deepopsctl.node_programs.services.web.offer import RefusedError


class Agent:
    """Answers all questions when `go` is set, and counts those that it has at a time."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now = self.most = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        self.now -= 1
        writer.write(b'{"live": []}\n')
        writer.close()


async def until(agent: Agent, count: int) -> None:
    for _ in range(500):
        if agent.now == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(agent.now)


def test_many_users_wait_for_their_turn_and_all_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "agent.sock")

    async def ask_all() -> Agent:
        monkeypatch.setattr(client, "TURNS", Turns())
        agent = Agent()
        async with await asyncio.start_unix_server(agent, path):
            questions = [asyncio.create_task(client.ask("jobs", f"user{number}", path)) for number in range(100)]
            await until(agent, Turns.IN_ALL)
            agent.go.set()
            assert await asyncio.gather(*questions) == [{"live": []}] * 100
        return agent

    assert asyncio.run(ask_all()).most == Turns.IN_ALL


def test_who_waits_too_long_for_a_turn_is_refused_and_the_turn_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "agent.sock")
    monkeypatch.setattr(Turns, "WAIT_S", 0.05)

    async def ask_while_all_wait() -> None:
        monkeypatch.setattr(client, "TURNS", Turns())
        agent = Agent()
        async with await asyncio.start_unix_server(agent, path):
            first = [asyncio.create_task(client.ask("jobs", f"user{number}", path)) for number in range(Turns.IN_ALL)]
            await until(agent, Turns.IN_ALL)
            with pytest.raises(BusyError, match="many users"):
                await client.ask("jobs", "late", path)
            agent.go.set()
            await asyncio.gather(*first)
            assert await client.ask("jobs", "late", path) == {"live": []}

    asyncio.run(ask_while_all_wait())


def test_one_user_takes_no_place_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "agent.sock")

    async def ask_too_much() -> None:
        monkeypatch.setattr(client, "TURNS", Turns())
        agent = Agent()
        async with await asyncio.start_unix_server(agent, path):
            mine = [asyncio.create_task(client.ask("jobs", "mallory", path)) for _ in range(Turns.OF_ONE)]
            await until(agent, Turns.OF_ONE)
            with pytest.raises(RefusedError, match="too much"):
                await client.ask("jobs", "mallory", path)
            other = asyncio.create_task(client.ask("jobs", "alice", path))
            await until(agent, Turns.OF_ONE + 1)
            agent.go.set()
            await asyncio.gather(*mine, other)
            assert await client.ask("jobs", "mallory", path) == {"live": []}

    asyncio.run(ask_too_much())

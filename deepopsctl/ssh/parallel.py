"""Runs sessions in parallel; asks for the password when needed, and tries it on one node first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

from deepopsctl.ssh import messages
from deepopsctl.ssh.messages import Facts
from deepopsctl.ssh.results import NodeResult, OnNode

WORKERS = 32


class Attempt(Protocol):
    """Interface of a session: `accepted` is the node's answer to the password, None without one."""

    accepted: bool | None

    @property
    def facts(self) -> Facts:
        """Facts of the node."""

    def with_keys(self) -> NodeResult | None:
        """Run the setup if a key is accepted; None if a password is needed."""

    def with_password(self, password: str) -> NodeResult:
        """Run the setup with a password."""


@dataclass(slots=True)
class Password:
    """The login password: its source, and the nodes' answers to it."""

    value: str = ""
    ask: Callable[[], str] | None = None
    accepted: bool = False
    refused_by: str = ""

    def get(self) -> str:
        """The password, asked for at most once; '' where there is none."""
        if not self.value and self.ask:
            self.value = self.ask()
            self.ask = None
        return self.value

    def record_answer(self, session: Attempt) -> None:
        """Record a node's answer; one success outweighs refusals, because nodes may have their own passwords."""
        if session.accepted:
            self.accepted = True
        elif session.accepted is False and not self.accepted:
            self.refused_by = session.facts.name


@dataclass(slots=True)
class Round:
    """One set of sessions at a time; `run` returns when each has a result."""

    password: Password
    on_node: OnNode
    stop: Callable[[], None]
    _waiting: deque[Attempt] = field(default_factory=deque)
    _trying: int = 0

    def run(self, sessions: Iterable[Attempt]) -> dict[str, NodeResult]:
        """Results by node name. The callback gets each as it comes, in this thread."""
        results: dict[str, NodeResult] = {}
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                for result in self._results(pool, sessions):
                    results[result.name] = result
                    self.on_node(result)
            except BaseException:
                self.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return results

    def _results(self, pool: ThreadPoolExecutor, sessions: Iterable[Attempt]) -> Iterator[NodeResult]:
        pending = {pool.submit(session.with_keys): session for session in sessions}
        with_password: set[Future[NodeResult | None]] = set()
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                session = pending.pop(future)
                if future in with_password:
                    self._trying -= 1
                    self.password.record_answer(session)
                result = future.result()
                if result is None:
                    self._waiting.append(session)
                else:
                    yield result
            yield from self._give_up()
            for session in self._released():
                attempt: Future[NodeResult | None] = pool.submit(session.with_password, self.password.get())
                with_password.add(attempt)
                pending[attempt] = session

    def _give_up(self) -> Iterator[NodeResult]:
        """Results of waiting nodes for which there is no password, or a refused one."""
        while self._waiting and (self.password.refused_by or not self.password.get()):
            facts = self._waiting.popleft().facts
            by = self.password.refused_by
            yield messages.not_tried(facts, by) if by else messages.no_password(facts)

    def _released(self) -> Iterator[Attempt]:
        """Sessions that may use the password now: the first alone, the others once it was accepted."""
        while self._waiting and (self.password.accepted or self._trying == 0):
            self._trying += 1
            yield self._waiting.popleft()

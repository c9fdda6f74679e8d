"""Agents on many nodes at once: one job for all, orders over its input, answers over its output."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import archive, checks, command
from ..._shared.waiting import wait_until
from ..._slurm_jobs import probe_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.probe_jobs import MOST_ALONE, Trouble
from ..._slurm_jobs.session import Outcome, Running, Session
from .agent import HELLO, MARK

Result = dict[str, Any]
# fio and Python side by side
MEMORY = "--mem=256M"
POLL_INTERVAL_S = 0.05
# from a job's start to its agent's first word; as long an answer may be on its way
STARTING_S = 30.0
_ENDING_S = 25.0


def agent_argv(*arguments: str) -> list[str]:
    """The command that reads this program from its input and runs the agent: no file is left on a node."""
    return archive.argv("suites.validate_storage.agent", *arguments)


class Order(NamedTuple):
    """What some nodes are to do; `each` has what differs, by node. Texts may have {node} and the keys of `each`."""

    act: str
    to: Sequence[str]
    limit: float
    parameters: dict[str, Any]
    each: dict[str, dict[str, str]] = {}  # noqa: RUF012 (a NamedTuple's default, never changed)

    def line(self, number: int) -> str:
        """As the agents read it."""
        order = {"n": number, "act": self.act, "to": list(self.to), "limit": self.limit, "with": self.parameters}
        return json.dumps(dict(order, each=self.each) if self.each else order) + "\n"


class AgentJob:
    """The agents of one job, or the one on this host."""

    def __init__(self, nodes: Sequence[str], running: Running, program: str, what: str = "") -> None:
        self.nodes, self.running, self.what = list(nodes), running, what
        self.answers: dict[tuple[Any, str], Result] = {}
        self._read = 0
        running.send(program + "\n", more=True)

    def read_answers(self) -> None:
        """Take in what has come."""
        text = self.running.text("out")
        end = text.rfind("\n") + 1
        for line in text[self._read : end].splitlines():
            _before, mark, rest = line.partition(MARK)
            if mark:
                answer = json.loads(rest)
                self.answers[answer.pop("n"), answer.pop("node")] = answer
        self._read = max(self._read, end)

    def has_answered(self, number: object, nodes: Sequence[str]) -> bool:
        """Whether all of its nodes among these have answered, or none of them will any more."""
        self.read_answers()
        waiting = any((number, node) not in self.answers for node in nodes if node in self.nodes)
        return not waiting or self.running.ended(0) is not None


def _options(place: Placement, minutes: Mapping[str, int]) -> list[str]:
    """srun's for one agent on each node."""
    return [*place.options(), MEMORY, f"--time={minutes[place.partition]}"]


class AgentPool:
    """All teams. No other thread writes to them."""

    def __init__(self, session: Session, program: str, starting_s: float = STARTING_S) -> None:
        """`program` is this suite as archive.own() has it."""
        self._session, self._program, self._starting_s = session, program, starting_s
        self._jobs: list[AgentJob] = []
        self._number = 0

    @property
    def nodes(self) -> list[str]:
        """Who takes part."""
        return [node for job in self._jobs for node in job.nodes]

    def add_local(self, name: str) -> None:
        """Start an agent on this host, outside of any job."""
        job = AgentJob([name], Running(agent_argv(name), command.slurm_environment()), self._program)
        self._wait([job], HELLO, [name], self._starting_s)
        if (HELLO, name) in job.answers:
            self._jobs.append(job)

    def start(self, places: Sequence[Placement], minutes: Mapping[str, int]) -> dict[str, Trouble]:
        """Start the jobs, each for as many minutes as its partition has; nodes whose agent never spoke, and why.

        A joint job that failed is tried node by node.
        """
        failed = self._start([(f"agents{number}", place) for number, place in enumerate(places)], minutes)
        again = [name for place in places if len(place.nodes) > 1 for name in place.nodes if name in failed]
        parts = {name: place.partition for place in places for name in place.nodes}
        alone = [("agent-" + name, Placement(parts[name], [name])) for name in again[:MOST_ALONE]]
        failed.update(dict.fromkeys(again[:MOST_ALONE]))
        failed.update(self._start(alone, minutes))
        return {name: what for name, what in failed.items() if what}

    def _start(
        self, placements: Sequence[tuple[str, Placement]], minutes: Mapping[str, int]
    ) -> dict[str, Trouble | None]:
        jobs = [
            AgentJob(
                place.nodes, self._session.start(what, _options(place, minutes), agent_argv()), self._program, what
            )
            for what, place in placements
        ]
        patience = self._session.queue_timeout + self._starting_s
        self._wait(jobs, HELLO, [node for job in jobs for node in job.nodes], patience)
        troubles: dict[str, Trouble | None] = {}
        for job in jobs:
            job.read_answers()
            silent = [node for node in job.nodes if (HELLO, node) not in job.answers]
            if not silent:
                self._jobs.append(job)
                continue
            what = probe_jobs.trouble(self._outcome(job))
            troubles.update(dict.fromkeys(job.nodes if len(job.nodes) > 1 else silent, what))
        return troubles

    def _outcome(self, job: AgentJob) -> Outcome:
        """End a job that did not come up in time, and Slurm's reason."""
        code = job.running.ended(0)
        state, reason = self._session.queued(self._session.name(job.what)) if code is None else ("", "")
        if code is None:
            self._session.cancel(["--name=" + self._session.name(job.what)])
            job.running.stop()
        state = "ended" if code is not None else "waiting" if state == "PENDING" else "hung"
        return Outcome(state, -1 if code is None else code, "", job.running.text("err"), reason)

    def ask(self, *orders: Order) -> list[dict[str, Result]]:
        """Give orders, all at the same time; what each node answered, order by order."""
        first = self._number + 1
        lines = [order.line(first + place) for place, order in enumerate(orders)]
        self._number += len(orders)
        for job in self._jobs:
            mine = [line for line, order in zip(lines, orders) if set(order.to) & set(job.nodes)]
            if mine:
                job.running.send("".join(mine), more=True)
        results = []
        until = time.monotonic() + sum(order.limit for order in orders) + self._starting_s
        for number, order in enumerate(orders, first):
            self._wait(self._jobs, number, order.to, until - time.monotonic())
            for job in self._jobs:
                job.read_answers()
            answers = {node: answer for job in self._jobs for (n, node), answer in job.answers.items() if n == number}
            results.append(
                {node: answers[node] if node in answers else self._silent(node, order.limit) for node in order.to}
            )
        for job in self._jobs:
            job.answers.clear()
        return results

    def _silent(self, node: str, limit: float) -> Result:
        job = next((job for job in self._jobs if node in job.nodes), None)
        if job and job.running.ended(0) is not None:
            message = checks.one_line(job.running.text("err")) or "no message"
            return {"error": "the job ended: " + message, "errno": "", "lost": True}
        return {"hung": limit}

    def _wait(self, jobs: Sequence[AgentJob], number: object, nodes: Sequence[str], seconds: float) -> None:
        wait_until(lambda: all(job.has_answered(number, nodes) for job in jobs), seconds, POLL_INTERVAL_S)

    def stop(self) -> None:
        """End all: an agent whose input ends removes what is left of its trials first."""
        for job in self._jobs:
            job.running.release()
        until = time.monotonic() + _ENDING_S
        for job in self._jobs:
            if job.running.ended(max(0.1, until - time.monotonic())) is None:
                job.running.stop()
        self._jobs = []

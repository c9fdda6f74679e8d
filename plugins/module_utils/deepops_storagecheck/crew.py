"""Agents on many nodes at once: one job for all, orders over its input, answers over its output."""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import across, command
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.across import Trouble
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.placement import Placement
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.session import Outcome, Running, Session

from . import packing
from .agent import HELLO, MARK

Result = Dict[str, Any]
# fio and Python side by side
MEMORY = "--mem=256M"
LOOK_S = 0.05
# from a job's start to its agent's first word; as long an answer may be on its way
STARTING_S = 30.0
# nodes tried alone after a joint job failed
MOST_ALONE = 24
_ENDING_S = 25.0


class Order(NamedTuple):
    """What some nodes are to do; `each` has what differs, by node. Texts may have {node} and the keys of `each`."""

    act: str
    to: Sequence[str]
    limit: float
    given: Dict[str, Any]
    each: Dict[str, Dict[str, str]] = {}  # noqa: RUF012 (a NamedTuple's default, never changed)

    def line(self, number: int) -> str:
        """As the agents read it."""
        order = {"n": number, "act": self.act, "to": list(self.to), "limit": self.limit, "with": self.given}
        return json.dumps(dict(order, each=self.each) if self.each else order) + "\n"


class Team:
    """The agents of one job, or the one of this machine."""

    def __init__(self, nodes: Sequence[str], running: Running, what: str = "") -> None:
        self.nodes, self.running, self.what = list(nodes), running, what
        self.said: Dict[Tuple[Any, str], Result] = {}
        self._read = 0
        running.send(packing.packed(), more=True)

    def listen(self) -> None:
        """Take in what has come."""
        text = self.running.text("out")
        end = text.rfind("\n") + 1
        for line in text[self._read : end].splitlines():
            _before, mark, rest = line.partition(MARK)
            if mark:
                answer = json.loads(rest)
                self.said[answer.pop("n"), answer.pop("node")] = answer
        self._read = max(self._read, end)

    def has(self, number: object, nodes: Sequence[str]) -> bool:
        """Whether all of its nodes among these have answered, or none of them will any more."""
        self.listen()
        waiting = any((number, node) not in self.said for node in nodes if node in self.nodes)
        return not waiting or self.running.ended(0) is not None


def _options(place: Placement, minutes: Mapping[str, int]) -> List[str]:
    """srun's for one agent on each node."""
    return [*place.options(), MEMORY, "--time={}".format(minutes[place.partition])]


class Crew:
    """All teams. Nobody else writes to them."""

    def __init__(self, session: Session, starting_s: float = STARTING_S) -> None:
        self._session, self._starting_s = session, starting_s
        self._teams: List[Team] = []
        self._number = 0

    @property
    def nodes(self) -> List[str]:
        """Who takes part."""
        return [node for team in self._teams for node in team.nodes]

    def enlist(self, name: str) -> None:
        """Let this machine take part, outside of any job."""
        team = Team([name], Running(packing.argv(name), command.clean_environment()))
        self._wait([team], HELLO, [name], self._starting_s)
        if (HELLO, name) in team.said:
            self._teams.append(team)

    def muster(self, places: Sequence[Placement], minutes: Mapping[str, int]) -> Dict[str, Trouble]:
        """Start the jobs, each for as many minutes as its partition has; nodes whose agent never spoke, and why.

        A joint job that failed is tried node by node.
        """
        failed = self._start([("agents{}".format(number), place) for number, place in enumerate(places)], minutes)
        again = [name for place in places if len(place.nodes) > 1 for name in place.nodes if name in failed]
        parts = {name: place.partition for place in places for name in place.nodes}
        alone = [("agent-" + name, Placement(parts[name], [name])) for name in again[:MOST_ALONE]]
        failed.update(dict.fromkeys(again[:MOST_ALONE]))
        failed.update(self._start(alone, minutes))
        return {name: what for name, what in failed.items() if what}

    def _start(self, jobs: Sequence[Tuple[str, Placement]], minutes: Mapping[str, int]) -> Dict[str, Optional[Trouble]]:
        teams = [
            Team(place.nodes, self._session.start(what, _options(place, minutes), packing.argv()), what)
            for what, place in jobs
        ]
        patience = self._session.queue_timeout + self._starting_s
        self._wait(teams, HELLO, [node for team in teams for node in team.nodes], patience)
        troubles: Dict[str, Optional[Trouble]] = {}
        for team in teams:
            team.listen()
            silent = [node for node in team.nodes if (HELLO, node) not in team.said]
            if not silent:
                self._teams.append(team)
                continue
            what = across.trouble(self._outcome(team))
            troubles.update(dict.fromkeys(team.nodes if len(team.nodes) > 1 else silent, what))
        return troubles

    def _outcome(self, team: Team) -> Outcome:
        """End a job that did not come up in time, and what Slurm says about it."""
        code = team.running.ended(0)
        state, reason = self._session.queued(self._session.name(team.what)) if code is None else ("", "")
        if code is None:
            self._session.cancel(["--name=" + self._session.name(team.what)])
            team.running.stop()
        state = "ended" if code is not None else "waiting" if state == "PENDING" else "hung"
        return Outcome(state, -1 if code is None else code, "", team.running.text("err"), reason)

    def ask(self, *orders: Order) -> List[Dict[str, Result]]:
        """Give orders, all at the same time; what each node answered, order by order."""
        first = self._number + 1
        lines = [order.line(first + place) for place, order in enumerate(orders)]
        self._number += len(orders)
        for team in self._teams:
            mine = [line for line, order in zip(lines, orders) if set(order.to) & set(team.nodes)]
            if mine:
                team.running.send("".join(mine), more=True)
        found = []
        until = time.monotonic() + sum(order.limit for order in orders) + self._starting_s
        for number, order in enumerate(orders, first):
            self._wait(self._teams, number, order.to, until - time.monotonic())
            for team in self._teams:
                team.listen()
            said = {node: answer for team in self._teams for (n, node), answer in team.said.items() if n == number}
            found.append({node: said[node] if node in said else self._silent(node, order.limit) for node in order.to})
        for team in self._teams:
            team.said.clear()
        return found

    def _silent(self, node: str, limit: float) -> Result:
        team = next((team for team in self._teams if node in team.nodes), None)
        if team and team.running.ended(0) is not None:
            said = across.one_line(team.running.text("err")) or "no message"
            return {"error": "the job ended: " + said, "errno": "", "lost": True}
        return {"hung": limit}

    def _wait(self, teams: Sequence[Team], number: object, nodes: Sequence[str], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not all(team.has(number, nodes) for team in teams) and time.monotonic() < until:
            time.sleep(LOOK_S)

    def dismiss(self) -> None:
        """End all: an agent whose input ends removes what is left of its trials first."""
        for team in self._teams:
            team.running.release()
        until = time.monotonic() + _ENDING_S
        for team in self._teams:
            if team.running.ended(max(0.1, until - time.monotonic())) is None:
                team.running.stop()
        self._teams = []

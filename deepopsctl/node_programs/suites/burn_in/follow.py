"""The jobs of a burn-in are watched in short calls, as no connection has to last as long as the load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import checks
from ..gpu_check.burn.evaluation import SUITE
from .results import NAME

Task = dict[str, Any]
# seconds between two calls: each costs the submit host a start of Python
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 20.0
# beyond the load itself: its start, its end, Slurm's epilogs
OVERTIME_S = 300.0
WAITING = ("PENDING",)


class Limits(NamedTuple):
    """In seconds: how long a job may wait, and how long the load takes."""

    queue_timeout: float
    seconds: float

    @property
    def pause(self) -> float:
        """Until the next call."""
        return min(max(self.seconds / 30, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def is_overdue(self, elapsed: float) -> bool:
        """Whether all jobs should have ended."""
        return elapsed > self.queue_timeout + self.seconds + OVERTIME_S

    def gives_up(self, elapsed: float, seen: Mapping[str, Task]) -> bool:
        """Whether jobs have waited too long."""
        return elapsed > self.queue_timeout and any(task["state"] in WAITING for task in seen.values())

    def is_over(self, elapsed: float, seen: Mapping[str, Task]) -> bool:
        """Whether all jobs have ended, or the queue has never known them: forgotten, or cancelled at once."""
        return not any(task["active"] for task in seen.values()) if seen else elapsed > self.queue_timeout


def update(seen: Mapping[str, Task], now: Sequence[Task]) -> dict[str, Task]:
    """The tasks by id, as the queue has them now."""
    current = {task["id"]: task for task in now}
    # what Slurm has forgotten has ended: its output says how
    ended = {
        identifier: dict(task, state="", active=False) if task["active"] else task
        for identifier, task in seen.items()
        if identifier not in current
    }
    return {**ended, **current}


def progress(seen: Mapping[str, Task], sent: int, seconds: float) -> str:
    """`burn-in: 3 nodes under load, 60 of 600 s; 1 waiting; 2 ended`, in steps that don't flood a log."""
    running = [task for task in seen.values() if task["active"] and task["state"] not in WAITING]
    waiting = sum(task["state"] in WAITING for task in seen.values()) if seen else sent
    ended = len(seen) - len(running) - (waiting if seen else 0)
    parts = []
    if running:
        step = max(seconds / 20, 10)
        used = min(max(task["used_s"] for task in running) // step * step, seconds)
        nodes = "1 node" if len(running) == 1 else f"{len(running)} nodes"
        parts.append(f"{nodes} under load, {used:.0f} of {seconds:.0f} s")
    parts += [f"{waiting} waiting"] if waiting else []
    parts += [f"{ended} ended"] if ended else []
    return "burn-in: " + "; ".join(parts)


def by_node(seen: Mapping[str, Task]) -> dict[str, list[Task]]:
    """The tasks that reached a node, by node."""
    tasks: dict[str, list[Task]] = {}
    for task in seen.values():
        if task["node"] and task["state"] not in WAITING:
            known = {key: task[key] for key in ("id", "state", "used_s")}
            tasks.setdefault(task["node"], []).append(known)
    return tasks


def left_alone(
    left: Mapping[str, str], sent: Sequence[str], jobs: Mapping[str, object], seen: Mapping[str, Task]
) -> list[checks.Check]:
    """The checks of nodes without a job of the suite: those that were not idle, and those that then got none."""
    reasons = sorted({task["reason"] for task in seen.values() if not task["node"] and task["reason"] != "None"})
    explanation = f"; Slurm's reason: {', '.join(reasons)}" if reasons else ""
    text = f"another job was quicker, or Slurm kept this one waiting{explanation}"
    every = {**left, **{name: text for name in sent if name not in jobs}}
    return [checks.skipped(SUITE, NAME, name, reason) for name, reason in every.items()]


def lost(token: str) -> str:
    """What to know when the submit host stays away."""
    name = f"deepopsctl-burnin-{token}"
    return (
        f"the submit host does not answer any more; the jobs continue (squeue --name={name}-load) and leave their "
        f"results in the user's home on each node: {name}-*.out"
    )

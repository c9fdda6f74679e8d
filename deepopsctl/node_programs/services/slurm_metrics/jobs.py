"""squeue's jobs: one question, all states that Slurm still remembers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..._shared import slurm_client
from ..._shared.slurm_output import gpus_of_tres, number as count_in, present, size, tres, whole
from .asking import layout, rows

FIELDS = (
    "JobArrayID", "State", "Partition", "Account", "UserName", "NumNodes", "NodeList", "tres-alloc", "EligibleTime",
    "StartTime", "Reason",
)  # fmt: skip
COMMAND = slurm_client.squeue("", "--all", "--states=all", "-O", layout(FIELDS))
PENDING, RUNNING, SUSPENDED = "pending", "running", "suspended"
# what holds resources: COMPLETING does until its epilog ends
_ALLOCATED = frozenset((RUNNING, SUSPENDED, "completing", "configuring", "stopped", "resizing", "signaling"))
_ENDED = frozenset((
    "boot_fail", "cancelled", "completed", "deadline", "failed", "node_fail", "out_of_memory", "preempted", "timeout",
    "revoked",
))  # fmt: skip
_TASKS = re.compile(r"\[([0-9,:-]+)(?:%[0-9]+)?\]")


@dataclass(frozen=True)
class Job:
    """A job, or `count` pending tasks of an array."""

    id: str
    state: str
    partitions: tuple[str, ...]
    account: str
    user: str
    nodes: int
    placed: bool
    cpus: int
    memory: int
    gpus: Mapping[str, int]
    # Unix seconds; 0 for never
    eligible: int
    start: int
    reason: str
    count: int = 1

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in _ENDED

    @property
    def partition(self) -> str:
        """Where it runs or, of a pending job, the first of those that it may run in."""
        return self.partitions[0]

    @property
    def is_held(self) -> bool:
        """Whether nothing but a person starts it."""
        return self.state == PENDING and self.reason.startswith("JobHeld")

    @property
    def is_allocated(self) -> bool:
        """Whether CPUs, memory and GPUs are its alone at this moment."""
        return self.state in _ALLOCATED

    @property
    def has_started(self) -> bool:
        """Whether `start` is when it did start; of a pending job it is when it might."""
        return self.placed and self.state != PENDING


def parse(text: str) -> tuple[list[Job], int]:
    """The jobs, and how many records of them can't be read."""
    records, unreadable = rows(text, len(FIELDS))
    return [_job(record) for record in records], unreadable


def _job(record: list[str]) -> Job:
    number, state, partition, account, user, nodes, names, resources, eligible, start, reason = record
    allocated = tres(resources)
    return Job(
        id=number,
        state=state.lower(),
        partitions=tuple(partition.split(",")),
        account=present(account),
        user=user,
        nodes=whole(nodes) or 0,
        # a job that was cancelled while it waited has a start, but no nodes
        placed=names not in ("", "(null)"),
        cpus=count_in(allocated, "cpu"),
        memory=size(allocated.get("mem", ""), "M") or 0,
        gpus=gpus_of_tres(allocated),
        eligible=whole(eligible) or 0,
        start=whole(start) or 0,
        reason=reason,
        count=tasks(number),
    )


def tasks(number: str) -> int:
    """How many tasks of an array one line stands for: 23 for `6_[1-20,40-60:10%2]`, 1 for what is not an array."""
    match = _TASKS.search(number)
    return sum(_length(part) for part in match[1].split(",")) if match else 1


def _length(part: str) -> int:
    span, _, step = part.partition(":")
    first, dash, last = span.partition("-")
    if not dash:
        return 1
    return max(0, (whole(last) or 0) - (whole(first) or 0)) // max(1, whole(step) or 0) + 1

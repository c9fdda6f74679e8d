"""sinfo's nodes: a line for each node in each of its partitions, made one node again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..._shared import slurm_client
from ..._shared.slurm_output import gpus, size, whole
from .asking import layout, rows

FIELDS = (
    "NodeList", "PartitionName", "StateComplete", "CPUsState", "Memory", "AllocMem", "FreeMem", "Gres", "GresUsed",
    "User", "Timestamp", "Reason",
)  # fmt: skip
COMMAND = slurm_client.sinfo("--all", "--Node", "-O", layout(FIELDS))
# Prometheus refuses a whole page for one value that is too long
LONGEST_REASON = 1024


@dataclass(frozen=True)
class Node:
    """One node. Memory in bytes; `free_memory` None if the node has not reported it."""

    name: str
    partitions: tuple[str, ...]
    states: frozenset[str]
    cpus: int
    cpus_allocated: int
    memory: int
    memory_allocated: int
    memory_free: int | None
    gpus: Mapping[str, int]
    gpus_allocated: Mapping[str, int]
    reason: str
    by: str
    since: int

    @property
    def is_busy(self) -> bool:
        """Whether jobs are on it."""
        return self.cpus_allocated > 0 or "completing" in self.states

    @property
    def is_drained(self) -> bool:
        """Whether it is out of service, and no job is left on it."""
        return "drain" in self.states and not self.is_busy


def parse(text: str) -> tuple[list[Node], int]:
    """The nodes by name, and how many records can't be read."""
    records, unreadable = rows(text, len(FIELDS))
    lines: dict[str, list[str]] = {}
    partitions: dict[str, list[str]] = {}
    for record in records:
        lines[record[0]] = record
        # a node in no partition has an empty one
        partitions.setdefault(record[0], []).extend([record[1]] if record[1] else [])
    return [_node(lines[name], tuple(sorted(partitions[name]))) for name in sorted(lines)], unreadable


def _node(record: list[str], partitions: tuple[str, ...]) -> Node:
    name, _, state, cpus, memory, allocated, free, gres, used, by, since, reason = record
    counts = [whole(each) or 0 for each in cpus.split("/")]
    return Node(
        name=name,
        partitions=partitions,
        states=frozenset(state.lower().split("+")),
        cpus=counts[3] if len(counts) == 4 else 0,
        cpus_allocated=counts[0],
        memory=size(memory, "M") or 0,
        memory_allocated=size(allocated, "M") or 0,
        memory_free=size(free, "M"),
        gpus=gpus(gres),
        gpus_allocated=gpus(used),
        reason="" if reason == "none" else reason[:LONGEST_REASON],
        by="" if by == "Unknown" else by,
        since=whole(since) or 0,
    )

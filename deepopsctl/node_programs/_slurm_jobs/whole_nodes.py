"""Jobs that take whole idle nodes: what they measure is the node's, and not that of its other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from .._shared import slurm_output
from .._shared.checks import Check
from .._shared.slurm_output import Record
from . import placement, suite as suite_of_jobs
from .placement import Placement
from .session import Session
from .snapshot import SlurmSnapshot

LEAST_MB, MOST_MB = 1500, 32_768
Rates = list[dict[str, Any]]


class Group(NamedTuple):
    """Nodes of one partition with the same hardware: what a job takes of each of them."""

    place: Placement
    gpus: int
    cpus: int
    memory_mb: int

    @property
    def nodes(self) -> list[str]:
        """Their names."""
        return self.place.nodes

    def options(self, nodes: Sequence[str], tasks: int = 1) -> list[str]:
        """srun's options for these nodes, with so many tasks on each."""
        return [
            "--partition=" + self.place.partition,
            "--nodelist=" + ",".join(nodes),
            f"--nodes={len(nodes)}",
            f"--ntasks={len(nodes) * tasks}",
            f"--ntasks-per-node={tasks}",
            f"--cpus-per-task={max(self.cpus // tasks, 1)}",
            f"--mem={self.memory_mb}M",
            *([f"--gpus-per-node={self.gpus}"] if self.gpus else []),
        ]


def measure(
    request: dict[str, Any], suite: str, snapshot: SlurmSnapshot, skip: Callable[[str, str], Check],
    measure_group: Callable[[Session, Group], tuple[list[Check], Rates]],
) -> dict[str, Any]:  # fmt: skip
    """The checks and rates of each group of the nodes that are asked for; `skip` makes the check of a node that no
    job gets now, with the reason."""
    tested = list(request["tested"])
    obstacles = {name: obstacle(snapshot, name) for name in tested}
    made = [skip(name, reason) for name, reason in obstacles.items() if reason]
    seconds = float(request["run_timeout"])
    session = suite_of_jobs.session(request, suite, seconds, int(seconds // 60) + 1)
    rates: Rates = []
    try:
        for group in groups(snapshot, [name for name in tested if not obstacles[name]]):
            more, measured = measure_group(session, group)
            made += more
            rates += measured
    finally:
        session.close()
    return {"checks": made, "rates": rates}


def obstacle(snapshot: SlurmSnapshot, name: str) -> str:
    """Why a job can't have the whole node now; rates of a part of one mean nothing."""
    node = snapshot.nodes.get(name)
    if node is None:
        return "Slurm has no such node"
    reason = placement.obstacle(node, snapshot.partitions)
    if reason:
        return reason
    if slurm_output.number(node, "CPUAlloc"):
        return "busy: another job is on it, and would change what is measured"
    return "" if _memory(node) >= LEAST_MB else f"its memory is too small: this takes {LEAST_MB} MiB"


def groups(snapshot: SlurmSnapshot, names: Sequence[str]) -> list[Group]:
    """Nodes by partition and hardware."""
    by_hardware: dict[tuple[int, int], list[str]] = {}
    for name in names:
        node = snapshot.nodes[name]
        by_hardware.setdefault((snapshot.gpus(name), _cpus(node)), []).append(name)
    return [
        Group(place, gpus, cpus, min(MOST_MB, *(_memory(snapshot.nodes[name]) for name in place.nodes)))
        for (gpus, cpus), members in by_hardware.items()
        for place in placement.place(members, snapshot.nodes, snapshot.partitions)
    ]


def _cpus(node: Record) -> int:
    # what Slurm keeps for itself is not a job's
    return max(1, slurm_output.number(node, "CPUEfctv") or slurm_output.number(node, "CPUTot"))


def _memory(node: Record) -> int:
    return slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem")

"""The cluster as Slurm reports it, queried once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .._shared import slurm_client, slurm_output
from .._shared.checks import one_line
from .._shared.command import Result
from .._shared.slurm_output import Record
from . import placement, slurm

COMMANDS = {
    "ping": slurm_client.PING,
    "config": slurm_client.CONFIG,
    "nodes": slurm_client.show("node", "--all"),
    "partitions": slurm_client.show("partition", "--all"),
    "clusters": slurm_client.CLUSTERS,
}


class SlurmSnapshot(NamedTuple):
    """Records by name, as of the start of the validation."""

    config: Record
    nodes: dict[str, Record]
    partitions: dict[str, Record]
    answers: dict[str, Result]

    def default_partition(self) -> str:
        """The default partition's name, '' when there is none."""
        return next((name for name, entry in self.partitions.items() if entry.get("Default") == "YES"), "")

    def gpus(self, name: str) -> int:
        """How many GPUs Slurm schedules on a node."""
        return slurm_output.gpu_count(self.nodes.get(name, {}).get("Gres", ""))

    def obstacles(self, names: Sequence[str]) -> dict[str, str]:
        """Nodes where a small job would have to wait, and why."""
        reasons = {name: placement.obstacle(self.nodes[name], self.partitions) for name in names if name in self.nodes}
        return {name: reason for name, reason in reasons.items() if reason}

    @property
    def answered(self) -> bool:
        """False when the controller does not answer: no job can be run."""
        return bool(self.nodes) and bool(self.partitions)

    @property
    def silence(self) -> str:
        """The controller's error text."""
        return "slurmctld does not answer: " + one_line(self.answers["nodes"].message or self.answers["ping"].message)


def read_snapshot() -> SlurmSnapshot:
    """Ask everything at once."""
    with ThreadPoolExecutor(len(COMMANDS)) as pool:
        answers = dict(zip(COMMANDS, pool.map(lambda name: slurm.ask(COMMANDS[name]), COMMANDS)))
    return SlurmSnapshot(
        config=slurm_output.config(answers["config"].output),
        nodes=slurm_output.records(answers["nodes"].output, "NodeName"),
        partitions=slurm_output.records(answers["partitions"].output, "PartitionName"),
        answers=answers,
    )

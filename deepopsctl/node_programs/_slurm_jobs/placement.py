"""Where probes may run: which nodes have room now, and through which partition each is reached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .._shared import node_states, slurm_output
from .._shared.slurm_output import Record

PROBE_MEMORY_MB = 100


class Placement(NamedTuple):
    """Nodes that one job can ask for together."""

    partition: str
    nodes: list[str]

    def options(self, gpus: int = 0) -> list[str]:
        """srun's options for one small task on each of the nodes."""
        count = str(len(self.nodes))
        arguments = [
            "--partition=" + self.partition,
            "--nodelist=" + ",".join(self.nodes),
            "--nodes=" + count,
            "--ntasks=" + count,
            "--ntasks-per-node=1",
            "--cpus-per-task=1",
            f"--mem={PROBE_MEMORY_MB}M",
        ]
        return arguments + ([f"--gpus-per-node={gpus}"] if gpus else [])


def is_up(node: Record | None) -> bool:
    """True when Slurm would start jobs on the node, now or after others have ended."""
    if node is None:
        return False
    # a reservation keeps away no job that may use it, and a requested reboot no job that comes before it
    away = node_states.NO_JOBS | node_states.STARTING | node_states.MAINTENANCE
    return not node_states.flags(node.get("State", "UNKNOWN")) & away


def allocated(node: Record, tres: str) -> int:
    """How much of a TRES (`cpu`, `gres/gpu`) jobs hold on the node now."""
    match = re.search(rf"(?:^|,){re.escape(tres)}=(\d+)", node.get("AllocTRES", ""))
    return int(match.group(1)) if match else 0


def free_gpus(node: Record) -> int:
    """GPUs of the node that no job holds."""
    return slurm_output.gpu_count(node.get("Gres", "")) - allocated(node, "gres/gpu")


def obstacle(node: Record, partitions: Mapping[str, Record]) -> str:
    """Why a small job would have to wait on this node; '' when it would start at once."""
    if not is_up(node):
        return f"the node is {node.get('State', 'unknown').lower()}"
    partition = choose(node, partitions)
    if not partition:
        return "no partition that is up has this node"
    used, total = slurm_output.number(node, "CPUAlloc"), slurm_output.number(node, "CPUTot")
    memory = slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem")
    if used and partitions[partition].get("OverSubscribe", "") == "EXCLUSIVE":
        return "busy: another job has the whole node"
    if used >= total:
        return f"busy: other jobs have all {total} CPUs"
    if memory < PROBE_MEMORY_MB:
        return "busy: other jobs have all its memory"
    return ""


def choose(node: Record, partitions: Mapping[str, Record]) -> str:
    """The partition to reach a node by: the default one if it has the node, else the first that is up."""
    names = [name for name in node.get("Partitions", "").split(",") if name in partitions]
    up = [name for name in names if partitions[name].get("State") == "UP"]
    default = [name for name in up if partitions[name].get("Default") == "YES"]
    return (default + up + [""])[0]


def room_for_two(node: Record) -> bool:
    """Whether two jobs with a core each find room at once."""
    threads = max(slurm_output.number(node, "ThreadsPerCore"), 1)
    return slurm_output.number(node, "CPUTot") - slurm_output.number(node, "CPUAlloc") >= 2 * threads


def place(names: Iterable[str], nodes: Mapping[str, Record], partitions: Mapping[str, Record]) -> list[Placement]:
    """Jobs that together reach every named node: by partition, no larger than the partition allows."""
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(choose(nodes[name], partitions), []).append(name)
    placements = []
    for partition, members in grouped.items():
        most = slurm_output.number(partitions[partition], "MaxNodes") or len(members)
        placements += [Placement(partition, members[start : start + most]) for start in range(0, len(members), most)]
    return placements

"""Which nodes are loaded, through which job arrays, and why the others are left alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._shared import slurm_output
from ..._shared.slurm_output import Record
from ..._slurm_jobs import placement

# MaxArraySize where Slurm does not report it
USUAL_ARRAY = 1001
# seconds beyond the load itself: the start, and what a hung worker is given
OVERTIME_S = 240
# shared work goes first, whatever the site's priorities are
NICE = 1_000_000


class LoadRequest(NamedTuple):
    """What was asked for; '' where Slurm's own choice is to hold."""

    seconds: float
    memory_share: float
    partition: str = ""
    qos: str = ""
    reservation: str = ""

    @property
    def minutes(self) -> int:
        """The time limit of the jobs."""
        return -(-int(self.seconds + OVERTIME_S) // 60)


class Batch(NamedTuple):
    """One job array: each of its tasks takes one whole node of these."""

    partition: str
    gpus: int
    nodes: list[str]


class Plan(NamedTuple):
    """Job arrays, and the reasons of nodes that are left alone."""

    batches: list[Batch]
    left: dict[str, str]


def plan(
    tested: Sequence[str],
    request: LoadRequest,
    nodes: Mapping[str, Record],
    partitions: Mapping[str, Record],
    most: int,
) -> Plan:
    """Idle nodes by partition and number of GPUs, in arrays of `most` tasks at most."""
    left: dict[str, str] = {}
    groups: dict[tuple[str, int], list[str]] = {}
    for name in tested:
        node = nodes.get(name)
        if node is None:
            left[name] = "Slurm does not know this node"
            continue
        where = request.partition or placement.choose(node, partitions)
        reason = obstacle(node, where, request, partitions)
        if reason:
            left[name] = reason
        else:
            groups.setdefault((where, slurm_output.gpu_count(node.get("Gres", ""))), []).append(name)
    batches = [
        Batch(where, gpus, members[start : start + most])
        for (where, gpus), members in groups.items()
        for start in range(0, len(members), most)
    ]
    return Plan(batches, left)


def obstacle(node: Record, where: str, request: LoadRequest, partitions: Mapping[str, Record]) -> str:
    """Why a node is left alone; '' for one that is idle now and may be loaded."""
    word = node.get("State", "UNKNOWN")
    why = slurm_output.reason(node)
    reason_text = f" ({why})" if why else ""
    if not placement.is_up(node):
        return f"the node is {word.lower()}{reason_text}"
    if "RESERVED" in word and not request.reservation:
        return f"the node is reserved{reason_text}"
    if not word.startswith("IDLE") or "COMPLETING" in word or slurm_output.number(node, "CPUAlloc"):
        return f"busy: jobs run here ({word.lower()})"
    return _partition_obstacle(node, where, request, partitions)


def _partition_obstacle(node: Record, where: str, request: LoadRequest, partitions: Mapping[str, Record]) -> str:
    if not where:
        return "no partition that is up has this node"
    if where not in node.get("Partitions", "").split(","):
        return f"the node is not in partition {where}"
    limit = slurm_output.minutes(partitions.get(where, {}).get("MaxTime", ""))
    if limit is not None and limit < request.minutes:
        allowed, needed = slurm_output.clock(limit), slurm_output.clock(request.minutes)
        hint = "choose another one (--partition) or a shorter time"
        return f"partition {where} allows jobs of {allowed}, this takes {needed}: {hint}"
    return ""


def others(batch: Batch, nodes: Mapping[str, Record]) -> list[str]:
    """Nodes of the partition that this array must not take."""
    wanted = set(batch.nodes)
    members = (name for name, node in nodes.items() if batch.partition in node.get("Partitions", "").split(","))
    return sorted(name for name in members if name not in wanted)


def most_tasks(config: Record) -> int:
    """How many tasks an array may have here."""
    size = config.get("MaxArraySize", "")
    # the highest index is one less than the size, and the first one is 0
    return max(1, int(size) if size.isdigit() else USUAL_ARRAY)


def options(batch: Batch, request: LoadRequest, nodes: Mapping[str, Record], output: str) -> list[str]:
    """sbatch's options: whole nodes, behind everybody else in the queue, never started twice."""
    away = others(batch, nodes)
    return [
        f"--array=0-{len(batch.nodes) - 1}",
        "--partition=" + batch.partition,
        *(["--exclude=" + ",".join(away)] if away else []),
        *(["--qos=" + request.qos] if request.qos else []),
        "--nodes=1",
        "--exclusive",
        # a whole node alone gives its job no GPU (tried with Slurm 24.11)
        *([f"--gres=gpu:{batch.gpus}"] if batch.gpus else []),
        "--mem=0",
        "--no-requeue",
        f"--nice={NICE}",
        "--comment=deepopsctl validate burnin: a sustained load, of less importance than any other job",
        "--chdir=/",
        "--output=" + output,
    ]

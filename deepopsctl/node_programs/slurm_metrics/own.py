"""What deepopsctl tells of Slurm whatever its release: by node, partition, account, user and type of GPU; in bytes."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterable, List, Sequence, Set, Tuple

from .exposition import Families
from .jobs import PENDING, Job
from .nodes import Node
from .waits import QUANTILES, Waits, quantile_of

# Who has jobs is told by name up to so many combinations of partition, account and user, those with most jobs first.
WHO_LIMIT = 1000
OTHERS = "(others)"

Who = Tuple[str, str, str]


def add_nodes(found: Families, nodes: Sequence[Node]) -> None:
    """States, drains, partitions, memory and GPUs of each node."""
    state = found.family("deepops_slurm_node_state", "1 for the state of a node and each of its flags.")
    drain = found.family("deepops_slurm_node_drain", "Since when a node is drained (Unix time), why and by whom.")
    partition = found.family("deepops_slurm_node_partition", "1 for each partition that a node is in.")
    gpus = found.family("deepops_slurm_node_gpus", "GPUs that a node is configured with.")
    used = found.family("deepops_slurm_node_gpus_allocated", "GPUs of a node that jobs have.")
    memory = found.family("deepops_slurm_node_memory_bytes", "Memory of a node that jobs may have.")
    taken = found.family("deepops_slurm_node_memory_allocated_bytes", "Memory of a node that jobs have.")
    for node in nodes:
        for each in sorted(node.states):
            state.set(1, node=node.name, state=each)
        if "drain" in node.states:
            drain.set(node.since, node=node.name, reason=node.reason, by=node.by)
        for each in node.partitions:
            partition.set(1, node=node.name, partition=each)
        for kind, count in node.gpus.items():
            gpus.set(count, node=node.name, gpu_type=kind)
            used.set(node.gpus_allocated.get(kind, 0), node=node.name, gpu_type=kind)
        memory.set(node.memory, node=node.name)
        taken.set(node.memory_allocated, node=node.name)


def add_jobs(found: Families, jobs: Sequence[Job]) -> None:
    """Jobs and what they hold or wait for, by who they are."""
    count = found.family("deepops_slurm_jobs", "Jobs that Slurm knows of; each task of an array is one.")
    cpus = found.family("deepops_slurm_cpus_allocated", "CPUs that jobs have.")
    memory = found.family("deepops_slurm_memory_allocated_bytes", "Memory that jobs have.")
    gpus = found.family("deepops_slurm_gpus_allocated", "GPUs that jobs have.")
    wanted = found.family("deepops_slurm_gpus_pending", "GPUs that pending jobs ask for, held ones aside.")
    named = _named(jobs)
    for job in jobs:
        partition, account, user = who = _who(job)
        if who not in named:
            account = user = OTHERS
        labels = {"partition": partition, "account": account, "user": user}
        count.add(job.count, state=job.state, **labels)
        if job.is_allocated:
            cpus.add(job.cpus, **labels)
            memory.add(job.memory, **labels)
        asks = job.state == PENDING and not job.is_held
        for kind, number in job.gpus.items() if job.is_allocated or asks else ():
            (wanted if asks else gpus).add(number * job.count, gpu_type=kind, **labels)


def add_queue(found: Families, partitions: Iterable[str], jobs: Sequence[Job], now: float) -> None:
    """How long jobs wait."""
    oldest = found.family(
        "deepops_slurm_queue_oldest_seconds",
        "How long the longest-waiting job that may start by now has been eligible; 0 where none waits.",
    )
    waits: Dict[str, float] = dict.fromkeys(partitions, 0.0)
    for job in jobs:
        if job.state == PENDING and not job.is_held and 0 < job.eligible <= now:
            for name in job.partitions:
                waits[name] = max(waits.get(name, 0.0), now - job.eligible)
    for name, seconds in waits.items():
        oldest.set(int(seconds), partition=name)


def add_starts(found: Families, waits: Waits) -> None:
    """How long those waited that started."""
    family = found.family(
        "deepops_slurm_queue_wait_seconds", "How long jobs waited that started in the last hour.", "summary"
    )
    for name, ordered in waits.by_partition().items():
        quantiles = {quantile: quantile_of(ordered, quantile) for quantile in QUANTILES}
        family.sum_up(ordered, quantiles, partition=name)


def _who(job: Job) -> Who:
    return job.partition, job.account, job.user


def _named(jobs: Sequence[Job]) -> Set[Who]:
    """Those with most jobs, so that a site with many users costs no more than one with `WHO_LIMIT`."""
    counted: Counter[Who] = Counter()
    for job in jobs:
        counted[_who(job)] += job.count
    ordered: List[Who] = sorted(counted, key=lambda who: (-counted[who], who))
    return set(ordered[:WHO_LIMIT])

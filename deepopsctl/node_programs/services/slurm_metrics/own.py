"""deepopsctl's own Slurm metrics, for every release: by node, partition, account, user and GPU type; in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..._shared.prometheus_text import Families
from .jobs import PENDING, Job
from .nodes import Node
from .waits import QUANTILES, Waits, quantile_of

# Limit of combinations of partition, account and user with their own labels, those with most jobs first.
WHO_LIMIT = 1000
OTHERS = "(others)"

Who = tuple[str, str, str]


def add_nodes(families: Families, nodes: Sequence[Node]) -> None:
    """States, drains, partitions, memory and GPUs of each node."""
    state = families.family("deepops_slurm_node_state", "1 for the state of a node and each of its flags.")
    drain = families.family("deepops_slurm_node_drain", "Since when a node is drained (Unix time), why and by whom.")
    partition = families.family("deepops_slurm_node_partition", "1 for each partition that a node is in.")
    gpus = families.family("deepops_slurm_node_gpus", "GPUs that a node is configured with.")
    used = families.family("deepops_slurm_node_gpus_allocated", "GPUs of a node that jobs have.")
    memory = families.family("deepops_slurm_node_memory_bytes", "Memory of a node that jobs may have.")
    memory_used = families.family("deepops_slurm_node_memory_allocated_bytes", "Memory of a node that jobs have.")
    for node in nodes:
        for each in sorted(node.states):
            state.set(1, node=node.name, state=each)
        if "drain" in node.states:
            drain.set(node.since, node=node.name, reason=node.reason, by=node.by)
        for each in node.partitions:
            partition.set(1, node=node.name, partition=each)
        for gpu_type, count in node.gpus.items():
            gpus.set(count, node=node.name, gpu_type=gpu_type)
            used.set(node.gpus_allocated.get(gpu_type, 0), node=node.name, gpu_type=gpu_type)
        memory.set(node.memory, node=node.name)
        memory_used.set(node.memory_allocated, node=node.name)


def add_jobs(families: Families, jobs: Sequence[Job]) -> None:
    """Jobs and what they hold or wait for, by who they are."""
    count = families.family("deepops_slurm_jobs", "Jobs that Slurm knows of; each task of an array is one.")
    cpus = families.family("deepops_slurm_cpus_allocated", "CPUs that jobs have.")
    memory = families.family("deepops_slurm_memory_allocated_bytes", "Memory that jobs have.")
    gpus = families.family("deepops_slurm_gpus_allocated", "GPUs that jobs have.")
    wanted = families.family("deepops_slurm_gpus_pending", "GPUs that pending jobs request, without held ones.")
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
        for gpu_type, number in job.gpus.items() if job.is_allocated or asks else ():
            (wanted if asks else gpus).add(number * job.count, gpu_type=gpu_type, **labels)


def add_queue(families: Families, partitions: Iterable[str], jobs: Sequence[Job], now: float) -> None:
    """How long jobs wait."""
    oldest = families.family(
        "deepops_slurm_queue_oldest_seconds",
        "How long the longest-waiting job that may start by now has been eligible; 0 where none waits.",
    )
    waits: dict[str, float] = dict.fromkeys(partitions, 0.0)
    for job in jobs:
        if job.state == PENDING and not job.is_held and 0 < job.eligible <= now:
            for name in job.partitions:
                waits[name] = max(waits.get(name, 0.0), now - job.eligible)
    for name, seconds in waits.items():
        oldest.set(int(seconds), partition=name)


def add_starts(families: Families, waits: Waits) -> None:
    """How long those waited that started."""
    family = families.family(
        "deepops_slurm_queue_wait_seconds", "How long jobs waited that started in the last hour.", "summary"
    )
    for name, ordered in waits.by_partition().items():
        quantiles = {quantile: quantile_of(ordered, quantile) for quantile in QUANTILES}
        family.sum_up(ordered, quantiles, partition=name)


def _who(job: Job) -> Who:
    return job.partition, job.account, job.user


def _named(jobs: Sequence[Job]) -> set[Who]:
    """Those with most jobs, so that a site with many users costs no more than one with `WHO_LIMIT`."""
    counted: Counter[Who] = Counter()
    for job in jobs:
        counted[_who(job)] += job.count
    ordered: list[Who] = sorted(counted, key=lambda who: (-counted[who], who))
    return set(ordered[:WHO_LIMIT])

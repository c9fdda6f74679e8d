"""Names of Slurm's own endpoint (26.05) for releases without one; the same meaning, and the same units.

What is called `bytes` or memory there counts MiB, and so it does here: a query must not mean something else after an
upgrade of Slurm. `deepops_slurm_*` has bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable

from ..._shared.prometheus_text import Families
from .jobs import PENDING, RUNNING, Job
from .nodes import Node

_MIB = 1 << 20
# a job's state in squeue, and what the endpoint calls it
_JOB_STATES: Mapping[str, str] = {
    "boot_fail": "bootfail",
    "cancelled": "cancelled",
    "completed": "completed",
    "completing": "completing",
    "configuring": "configuring",
    "deadline": "deadline",
    "failed": "failed",
    "node_fail": "node_failed",
    "out_of_memory": "outofmemory",
    PENDING: "pending",
    "preempted": "preempted",
    "requeued": "requeued",
    "resizing": "resizing",
    "revoked": "revoked",
    RUNNING: "running",
    "signaling": "signaling",
    "stage_out": "stageout",
    "suspended": "suspended",
    "timeout": "timeout",
}
# flag or state of a node, what it is called among nodes and what among a partition's nodes
_NODE_STATES = (
    ("allocated", "alloc", "alloc"),
    ("blocked", "blocked", "blocked"),
    ("completing", "completing", "cg"),
    ("cloud", "cloud", "cloud"),
    ("down", "down", "down"),
    ("fail", "fail", "fail"),
    ("future", "future", "future"),
    ("idle", "idle", "idle"),
    ("invalid_reg", "invalid_reg", "invalid_reg"),
    ("maintenance", "maint", "maint"),
    ("mixed", "mixed", "mixed"),
    ("not_responding", "noresp", "no_resp"),
    ("planned", "planned", "planned"),
    ("power_down", "power_down", "power_down"),
    ("power_up", "power_up", "power_up"),
    ("powered_down", "powered_down", "powered_down"),
    # 26.05 has this one of partitions only
    ("powering_down", "", "powering_down"),
    ("powering_up", "powering_up", "powering_up"),
    ("reboot_issued", "reboot_issued", "reboot_issued"),
    ("reboot_requested", "reboot_req", "reboot_requested"),
    ("reserved", "resv", "resv"),
    ("unknown", "unknown", "unknown"),
)


def add_jobs(families: Families, jobs: Sequence[Job], nodes: Sequence[Node]) -> None:
    """The metrics of /metrics/jobs."""
    _jobs(families, "slurm_jobs", jobs, {})
    busy = sum(1 for node in nodes if node.cpus_allocated > 0)
    families.add_value("slurm_jobs_nodes_alloc", "Total number of nodes allocated by jobs", busy)


def add_nodes(families: Families, nodes: Sequence[Node]) -> None:
    """The metrics of /metrics/nodes."""
    for name, text, value in _OF_NODE:
        family = families.family(f"slurm_node_{name}", text)
        for node in nodes:
            family.set(value(node), node=node.name)
    families.add_value("slurm_nodes", "Total number of nodes", len(nodes))
    for state, name, _ in _NODE_STATES:
        if name:
            count = sum(state in node.states for node in nodes)
            families.add_value(f"slurm_nodes_{name}", f"Number of nodes that are {state.replace('_', ' ')}", count)
    for name, text, count in _drains(nodes):
        families.add_value(f"slurm_nodes_{name}", text, count)


def add_partitions(families: Families, partitions: Iterable[str], jobs: Sequence[Job], nodes: Sequence[Node]) -> None:
    """The metrics of /metrics/partitions."""
    names = sorted(partitions)
    families.add_value("slurm_partitions", "Total number of partitions", len(names))
    jobs_of: dict[str, list[Job]] = {name: [] for name in names}
    nodes_of: dict[str, list[Node]] = {name: [] for name in names}
    for job in jobs:
        jobs_of.setdefault(job.partition, []).append(job)
    for node in nodes:
        for name in node.partitions:
            nodes_of.setdefault(name, []).append(node)
    for name in names:
        _jobs(families, "slurm_partition_jobs", jobs_of[name], {"partition": name})
        _widest(families, jobs_of[name], name)
        _partition_nodes(families, nodes_of[name], name)


def _jobs(families: Families, prefix: str, jobs: Sequence[Job], labels: Mapping[str, str]) -> None:
    def add_value(suffix: str, text: str, value: float) -> None:
        families.family(prefix + suffix, text).set(value, **labels)

    add_value("", "Total number of jobs", sum(job.count for job in jobs))
    by_state: Counter[str] = Counter()
    for job in jobs:
        by_state[job.state] += job.count
    for state, name in _JOB_STATES.items():
        add_value(f"_{name}", f"Number of jobs in state {state}", by_state[state])
    add_value("_hold", "Number of jobs that are held", sum(job.count for job in jobs if job.is_held))
    add_value("_finished", "Number of finished jobs", sum(job.count for job in jobs if job.has_ended))
    add_value("_started", "Number of started jobs", sum(job.count for job in jobs if job.state != PENDING))
    holding = [job for job in jobs if job.is_allocated]
    add_value("_cpus_alloc", "Total number of CPUs allocated by jobs", sum(job.cpus for job in holding))
    add_value("_gpus_alloc", "Total number of GPUs allocated by jobs", sum(sum(job.gpus.values()) for job in holding))
    add_value(
        "_memory_alloc", "Total memory allocated by jobs (MiB, as Slurm's own)", _mib(job.memory for job in holding)
    )


def _widest(families: Families, jobs: Sequence[Job], name: str) -> None:
    pending = [job for job in jobs if job.state == PENDING]
    for suffix, text, asked in (
        ("", "Most nodes that a pending job needs", pending),
        (
            "_nohold",
            "Most nodes that a pending job needs, held ones aside",
            [job for job in pending if not job.is_held],
        ),
    ):
        widest = max((job.nodes for job in asked), default=0)
        families.family(f"slurm_partition_jobs_min_job_nodes{suffix}", text).set(widest, partition=name)


def _partition_nodes(families: Families, nodes: Sequence[Node], name: str) -> None:
    def add_value(suffix: str, text: str, value: float) -> None:
        families.family(f"slurm_partition_{suffix}", text).set(value, partition=name)

    add_value("cpus", "CPUs of the partition's nodes", sum(node.cpus for node in nodes))
    add_value("gpus", "GPUs of the partition's nodes", sum(sum(node.gpus.values()) for node in nodes))
    add_value("nodes", "Nodes of the partition", len(nodes))
    used = sum(node.cpus_allocated for node in nodes)
    add_value("nodes_cpus_alloc", "CPUs of its nodes that jobs have", used)
    add_value("nodes_cpus_idle", "CPUs of its nodes that no job has", sum(node.cpus for node in nodes) - used)
    add_value(
        "nodes_mem_alloc", "Memory that jobs have (MiB, as Slurm's own)", _mib(node.memory_allocated for node in nodes)
    )
    add_value("nodes_mem_free", "Free memory (MiB, as Slurm's own)", _mib(node.memory_free or 0 for node in nodes))
    add_value("nodes_mem_tot", "Memory of its nodes (MiB, as Slurm's own)", _mib(node.memory for node in nodes))
    for state, _, short in _NODE_STATES:
        count = sum(state in node.states for node in nodes)
        add_value(f"nodes_{short}", f"Nodes of the partition that are {state.replace('_', ' ')}", count)
    for short, text, count in _drains(nodes):
        add_value(f"nodes_{short}", text, count)


def _drains(nodes: Sequence[Node]) -> list[tuple[str, str, int]]:
    drained = sum(node.is_drained for node in nodes)
    draining = sum("drain" in node.states for node in nodes) - drained
    return [
        # 26.05 counts in both what is drained, and in neither what still drains
        ("drain", "Number of nodes that are drained", drained),
        ("drained", "Number of nodes that are drained", drained),
        ("draining", "Number of nodes that drain, with jobs on them", draining),
    ]


def _mib(amounts: Iterable[int]) -> int:
    return sum(amounts) // _MIB


_OF_NODE: tuple[tuple[str, str, Callable[[Node], float]], ...] = (
    ("cpus", "Total number of CPUs in the node", lambda node: node.cpus),
    ("cpus_alloc", "Allocated CPUs in the node", lambda node: node.cpus_allocated),
    ("cpus_idle", "Idle CPUs in the node", lambda node: node.cpus - node.cpus_allocated),
    ("gpus", "Total number of GPUs in the node", lambda node: sum(node.gpus.values())),
    ("gpus_alloc", "GPUs that jobs have on the node", lambda node: sum(node.gpus_allocated.values())),
    ("memory_bytes", "Memory of the node (MiB, as Slurm's own)", lambda node: node.memory // _MIB),
    ("memory_alloc_bytes", "Memory that jobs have (MiB, as Slurm's own)", lambda node: node.memory_allocated // _MIB),
    ("memory_free_bytes", "Free memory (MiB, as Slurm's own)", lambda node: (node.memory_free or 0) // _MIB),
)

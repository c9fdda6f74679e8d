"""Which nodes a suite takes as a whole, and which of them together."""

from __future__ import annotations

from deepopsctl.node_programs._slurm_jobs import whole_nodes
from deepopsctl.node_programs._slurm_jobs.snapshot import SlurmSnapshot


def snapshot(**nodes: dict[str, str]) -> SlurmSnapshot:
    usual = {"State": "IDLE", "Partitions": "batch", "CPUTot": "4", "CPUAlloc": "0", "RealMemory": "8000"}
    made = {name: {**usual, "AllocMem": "0", **changed} for name, changed in nodes.items()}
    return SlurmSnapshot({}, made, {"batch": {"State": "UP", "Default": "YES"}}, {})


def test_nodes_with_the_same_hardware_are_one_job() -> None:
    cluster = snapshot(
        cpu01={}, gpu01={"Gres": "gpu:h100:8", "CPUTot": "64"}, cpu02={"RealMemory": "4000"}, cpu03={"CPUTot": "1"}
    )

    made = whole_nodes.groups(cluster, list(cluster.nodes))

    assert [(group.nodes, group.gpus, group.cpus, group.memory_mb) for group in made] == [
        (["cpu01", "cpu02"], 0, 4, 4000), (["gpu01"], 8, 64, 8000), (["cpu03"], 0, 1, 8000),
    ]  # fmt: skip


def test_only_idle_nodes_are_taken() -> None:
    cluster = snapshot(cpu01={"CPUAlloc": "1"}, cpu02={"RealMemory": "900"}, cpu03={"State": "DRAINED"}, cpu04={})

    reasons = {name: whole_nodes.obstacle(cluster, name) for name in [*cluster.nodes, "cpu05"]}

    assert [name for name, reason in reasons.items() if not reason] == ["cpu04"]
    assert "another job" in reasons["cpu01"]

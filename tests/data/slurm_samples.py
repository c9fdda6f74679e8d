"""Nodes and partitions as `scontrol --oneliner show` gives them, parsed."""

from __future__ import annotations


def node(name: str = "gpu01", **changes: str) -> dict[str, str]:
    """An idle node with two GPUs."""
    fields = {
        "NodeName": name, "State": "IDLE", "CPUTot": "8", "CPUAlloc": "0", "RealMemory": "32000", "AllocMem": "0",
        "Gres": "gpu:h100:2", "Partitions": "gpu", "AllocTRES": "", "ThreadsPerCore": "1",
    }  # fmt: skip
    return {**fields, **changes}


def partition(name: str = "gpu", **changes: str) -> dict[str, str]:
    """A partition that is up and has no limits."""
    fields = {"PartitionName": name, "State": "UP", "Default": "NO", "MaxTime": "UNLIMITED", "MaxNodes": "UNLIMITED"}
    return {**fields, **changes}


# a job of 2 h on one node, as sacct of 24.11 prints it with the fields of job_report
JOB = (
    "4711", "4711", "alice", "phys", "gpu", "COMPLETED", "0:0", "1795341296", "1795348496", "7200", "480", "32", "1",
    "gpu01", "billing=32,cpu=32,gres/gpu:h100=2,gres/gpu=2,mem=128G,node=1", "04:12:00", "", "",
)  # fmt: skip

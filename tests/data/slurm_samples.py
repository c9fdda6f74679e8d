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

"""Checks of this suite; their targets are compute nodes, or all nodes of a job."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "training"
SOFTWARE, NODE = "training-software", "training-node"
# compared by deepopsctl with the other nodes and with earlier runs
RATE, EFFICIENCY = "training-rate", "training-efficiency"
# each way to train, and the package that it needs besides torch
METHODS = {"ddp": "", "fsdp": "", "accelerate": "accelerate", "deepspeed": "deepspeed", "mpi": "mpi4py"}

check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)
failed = partial(checks.failed, SUITE)


def of_method(method: str) -> str:
    """The check of a way to train."""
    return f"training-{method}"

"""All-reduce over the GPUs of several nodes: one process a node, in one job, started together.

The first node's process makes NCCL's unique id and prints it; the job's starter passes it to all of them over
their input (srun does both, as the job's user). No port is agreed on and no file is shared for it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable

from .cuda import Cuda
from .device_tests import NotPossibleError
from .libraries import UniqueId, all_reduce_among, load, unique_id
from .worker import tried

ID_MARK, RESULT_MARK = "GPUCHECK-ID ", "GPUCHECK-ACROSS "


def across(nodes: int, path: str) -> int:
    """Run this node's part; always 0: the result line has the status."""
    # NCCL may print: only our lines may go to stdout
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write_line(text: str) -> None:
        lines.write(text + "\n")
        lines.flush()

    rank = int(os.environ.get("SLURM_NODEID", "0"))
    outcome = tried(lambda: _join_all_reduce(rank, nodes, path, write_line))
    if rank == 0 and outcome["status"] == "skip":
        # the others wait for an id: an empty one stops them
        write_line(ID_MARK)
    write_line(RESULT_MARK + json.dumps({"rank": rank, **outcome}))
    return 0


def _join_all_reduce(rank: int, nodes: int, path: str, write_line: Callable[[str], None]) -> dict[str, Any]:
    cuda, library = Cuda(), load(path)
    if rank == 0:
        write_line(ID_MARK + bytes(unique_id(library)).hex())
    nccl_id = bytes.fromhex(sys.stdin.readline().strip())
    if len(nccl_id) != len(bytes(UniqueId())):
        raise NotPossibleError("the first node's id did not arrive")
    mine = cuda.count()
    return all_reduce_among(cuda, library, UniqueId.from_buffer_copy(nccl_id), nodes * mine, rank * mine)

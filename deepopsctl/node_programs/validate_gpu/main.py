"""What `node_program` starts on a submit host, as the connecting user."""

from __future__ import annotations

import getpass
import os
import time
from typing import Any, Dict

from .._shared import archive, hangup
from . import inputs, suite


def main(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run the suite: first as many jobs with one GPU as a node has GPUs, then one job with all of them, on every node.

    Nothing is copied to the nodes. What has no free GPU now is skipped; no job of anybody else is touched. `declared`
    is what cluster.yml says of each node's GPUs; `libraries` cuBLAS and NCCL as they are kept in `libraries_directory`
    on the GPU nodes. Measurements are evaluated on the control machine.
    """
    if request["check_mode"]:
        return {"deepops": {"checks": []}, "elapsed_s": 0.0, "msg": "check mode: nothing is tried"}
    started = time.monotonic()
    known = inputs.declared(request["declared"])
    directory, libraries = request["libraries_directory"], request["libraries"]
    selected = inputs.Inputs(
        cluster=request["cluster"],
        user=getpass.getuser(),
        tested=[name for name in request["tested"] if name in known],
        declared=known,
        archive=archive.own(),
        gpu_timeout=float(request["gpu_timeout"]),
        queue_timeout=float(request["queue_timeout"]),
        cublas=inputs.library(directory, libraries, "cublas"),
        nccl=inputs.library(directory, libraries, "nccl"),
        reservation=request["reservation"],
    )
    jobs = suite.Jobs(os.urandom(3).hex(), selected)
    hangup.watch(jobs.abandon)
    report = suite.run(selected, jobs)
    elapsed = round(time.monotonic() - started, 1)
    return {"deepops": {"checks": report.checks, "gpus": report.results}, "elapsed_s": elapsed}

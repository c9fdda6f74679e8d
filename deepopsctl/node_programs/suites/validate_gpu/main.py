"""What `node_program` starts on a submit host, as the connecting user."""

from __future__ import annotations

import getpass
import os
from typing import Any

from ..._shared import archive, hangup
from ..._slurm_jobs import suite as suite_of_jobs
from . import inputs, suite


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Run the suite."""
    return suite_of_jobs.run_trials(request, trials)


def trials(request: dict[str, Any]) -> dict[str, Any]:
    """First as many jobs with one GPU as a node has GPUs, then one job with all of them, on every node.

    Nothing is copied to the nodes. What has no free GPU now is skipped; no job of anybody else is touched. `declared`
    is what cluster.yml says of each node's GPUs; `libraries` cuBLAS and NCCL as they are kept in `libraries_directory`
    on the GPU nodes. Measurements are evaluated on the control machine.
    """
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
    report = suite.verify_gpus(selected, jobs)
    return {"checks": report.checks, "gpus": report.results}

#!/usr/bin/python
"""Test the GPUs of a cluster through Slurm, as a user's jobs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_gpu
short_description: Run the GPU suite on a submit host
description:
  - Runs as the connecting user, on a machine with Slurm's client tools. On every node, first as many jobs with one GPU
    as it has GPUs (and one without) try what they can open, then one job with all of them measures (gpucheck).
  - Nothing is copied to the nodes. What has no free GPU now is skipped; no job of anybody is touched. Whatever is left
    of our own is cancelled at the end, and when whoever started this is gone.
  - An action plugin of the same name sets O(program) and O(declared), and consumes O(nodes).
  - The module does not fail because a check fails. Measurements are judged on the control machine.
options:
  cluster: {description: The cluster's name., type: str, required: true}
  tested: {description: The GPU nodes to test., type: list, elements: str, required: true}
  declared: {description: What cluster.yml says of each node's GPUs., type: dict, required: true}
  program: {description: gpucheck, packed, as base64 text., type: str, required: true}
  gpu_timeout: {description: The longest for one GPU (seconds)., type: float, default: 120}
  queue_timeout: {description: Seconds a job may wait for resources., type: int, default: 20}
  reservation: {description: A reservation for all jobs; empty for none., type: str, default: ""}
  libraries: {description: cuBLAS and NCCL as M(deepopsctl.cluster.python_wheels) has them., type: dict, default: {}}
  libraries_folder: {description: Where it keeps them on the GPU nodes., type: path, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Run the GPU suite
  deepopsctl.cluster.slurm_gpu:
    cluster: hpc
    tested: [gpu01, gpu02]
    nodes: "{{ slurm_nodes }}"
"""

RETURN = r"""
deepops: {description: "C(checks), and gpucheck's results as C(gpus).", type: dict, returned: always}
elapsed_s: {description: Seconds the suite took., type: float, returned: always}
"""

import getpass
import os
from typing import Any, Dict

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_gpu import hangup, inputs, paths, suite
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import suite_module

SPEC = {
    "cluster": {"type": "str", "required": True},
    "tested": {"type": "list", "elements": "str", "required": True},
    "declared": {"type": "dict", "required": True},
    "program": {"type": "str", "required": True},
    "gpu_timeout": {"type": "float", "default": 120},
    "libraries": {"type": "dict", "default": {}},
    "libraries_folder": {"type": "path", "default": ""},
}


def run_checks(params: Dict[str, Any]) -> Dict[str, Any]:
    """The whole suite, and each node's result."""
    known = inputs.declared(params["declared"])
    selected = inputs.Inputs(
        cluster=params["cluster"],
        user=getpass.getuser(),
        tested=[name for name in params["tested"] if name in known],
        declared=known,
        program=params["program"],
        gpu_timeout=params["gpu_timeout"],
        queue_timeout=params["queue_timeout"],
        cublas=paths.loaded(params["libraries_folder"], params["libraries"], "cublas"),
        nccl=paths.loaded(params["libraries_folder"], params["libraries"], "nccl"),
    )
    jobs = suite.Jobs(os.urandom(3).hex(), selected)
    hangup.watch(jobs.abandon)
    report = suite.run(selected, jobs)
    return {"checks": report.checks, "gpus": report.results}


def main() -> None:
    suite_module.run_suite_module(SPEC, run_checks)


if __name__ == "__main__":
    main()

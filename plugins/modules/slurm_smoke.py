#!/usr/bin/python
"""Prove through Slurm, as a user's jobs, that the cluster works."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_smoke
short_description: Run the smoke suite on a submit host
description:
  - Runs as the connecting user, on a machine with Slurm's client tools. Every trial is a job with a recognisable name,
    a short time limit and a place in the queue like any other; whatever is left is cancelled at the end.
  - Nodes that other jobs fill are skipped, with the reason, after O(queue_timeout) seconds at most.
  - The module does not fail because a check fails; the checks say so themselves.
options:
  cluster: {description: The cluster's name., type: str, required: true}
  submit_host: {description: This machine's name in the inventory., type: str, required: true}
  tested: {description: The compute nodes to test., type: list, elements: str, required: true}
  nodes: {description: C(slurm_nodes) of the inventory., type: list, elements: dict, required: true}
  partitions: {description: C(slurm_partitions) of the inventory., type: list, elements: dict, required: true}
  hardware: {description: The C(nodes) of hardware.yml., type: list, elements: dict, default: []}
  reports: {description: What M(deepopsctl.cluster.node_smoke) returned as RV(report), by node., type: dict, default:
    {}}
  job_directories:
    description: The inventory's C(slurm_job_directories); empty where jobs have no directories of their own.
    type: dict
    default: {}
  queue_timeout: {description: Seconds a job may wait for resources., type: int, default: 20}
  run_timeout: {description: Seconds a started job may take, with its prolog., type: int, default: 60}
  reservation: {description: A reservation for all jobs; empty for none., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Run the smoke suite
  deepopsctl.cluster.slurm_smoke:
    cluster: hpc
    submit_host: "{{ inventory_hostname }}"
    tested: [gpu01, gpu02]
    nodes: "{{ slurm_nodes }}"
    partitions: "{{ slurm_partitions }}"
"""

RETURN = r"""
deepops: {description: The checks., type: dict, returned: always}
elapsed_s: {description: Seconds the suite took., type: float, returned: always}
"""

import getpass
import os
from typing import Any, Dict

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import (
    command,
    expected,
    inputs,
    session,
    suite_module,
    suite_order,
)

SPEC = {
    "cluster": {"type": "str", "required": True},
    "submit_host": {"type": "str", "required": True},
    "tested": {"type": "list", "elements": "str", "required": True},
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "partitions": {"type": "list", "elements": "dict", "required": True},
    "hardware": {"type": "list", "elements": "dict", "default": []},
    "reports": {"type": "dict", "default": {}},
    "job_directories": {"type": "dict", "default": {}},
    "run_timeout": {"type": "int", "default": 60},
}


def expand(names: str) -> list[str]:
    """Slurm's own reading of a node set; a plain name needs none."""
    if not set(names) & set("[],"):
        return [names]
    return command.run(["scontrol", "show", "hostnames", names]).out.split()


def run_checks(params: Dict[str, Any]) -> Dict[str, Any]:
    """The whole suite."""
    wanted = expected.nodes(params["nodes"], params["hardware"], expand)
    known = [node.name for node in wanted.values() if node.cpus] or list(wanted)
    suite_inputs = inputs.Inputs(
        cluster=params["cluster"],
        submit=params["submit_host"],
        user=getpass.getuser(),
        tested=[name for name in wanted if name in set(params["tested"])],
        reports=params["reports"],
        wanted=wanted,
        partitions=expected.partitions(params["partitions"], known, expand),
        directories=params["job_directories"],
    )
    jobs = session.Session(os.urandom(3).hex(), suite_inputs.user, params["queue_timeout"], params["run_timeout"])
    return {"checks": suite_order.run(suite_inputs, jobs)}


def main() -> None:
    suite_module.run_suite_module(SPEC, run_checks)


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Try a cluster's shared storage from all nodes at once, as a user's jobs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_storage_check
short_description: Run the storage suite on a submit host
description:
  - Runs as the connecting user, on a machine with Slurm's client tools. One job holds an agent on every compute node;
    they write, read each other's files, replace and lock them, and measure. This machine takes part where it has the
    mount.
  - Nothing is copied to the nodes. Jobs are cancelled and files removed at the end, and when whoever started this is
    gone.
  - An action plugin of the same name makes O(wanted) out of C(storage_mounts).
  - The module does not fail because a check fails; the checks say so themselves.
options:
  cluster: {description: The cluster's name., type: str, required: true}
  submit_host: {description: This machine's name in the inventory., type: str, required: true}
  compute: {description: The compute nodes to test., type: list, elements: str, required: true}
  wanted: {description: "Entries of C(storage), each with its C(nodes).", type: list, elements: dict, required: true}
  seen: {description: What M(deepopsctl.cluster.node_storage_check) returned as RV(seen), by node., type: dict,
    required: true}
  size_mb: {description: How much each node writes to measure a rate (MiB); 0 for no rates., type: int, default: 64}
  seconds: {description: How long each rate is measured., type: float, default: 5}
  timeout: {description: The longest that a file system may take to answer (seconds)., type: float, default: 15}
  queue_timeout: {description: Seconds a job may wait for resources., type: int, default: 20}
  reservation: {description: A reservation for all jobs; empty for none., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Run the storage suite
  deepopsctl.cluster.slurm_storage_check:
    cluster: hpc
    submit_host: "{{ inventory_hostname }}"
    compute: [gpu01, gpu02]
    mounts: "{{ storage_mounts }}"
    seen: {}
"""

RETURN = r"""
deepops: {description: The checks., type: dict, returned: always}
elapsed_s: {description: Seconds the suite took., type: float, returned: always}
"""

import getpass
import os
from typing import Any, Dict

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_gpu import hangup
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import session, suite_module
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_storagecheck import (
    agent_pool,
    checks,
    inputs,
    suite,
)

SPEC = {
    "cluster": {"type": "str", "required": True},
    "submit_host": {"type": "str", "required": True},
    "compute": {"type": "list", "elements": "str", "required": True},
    "wanted": {"type": "list", "elements": "dict", "required": True},
    "seen": {"type": "dict", "required": True},
    "size_mb": {"type": "int", "default": 64},
    "seconds": {"type": "float", "default": 5},
    "timeout": {"type": "float", "default": 15},
}


def run_checks(params: Dict[str, Any]) -> Dict[str, Any]:
    """The whole suite."""
    selected = suite.Inputs(
        cluster=params["cluster"],
        submit=params["submit_host"],
        compute=params["compute"],
        wanted=inputs.by_node(params["wanted"]),
        seen=inputs.seen(params["seen"]),
        bounds=inputs.Bounds(size_mib=params["size_mb"], seconds=params["seconds"], answer_s=params["timeout"]),
    )
    most = selected.seconds()
    jobs = session.Session(
        os.urandom(3).hex(), getpass.getuser(), params["queue_timeout"], most, checks.SUITE, -(-int(most) // 60)
    )
    # where file systems may be slow, machines are
    agents = agent_pool.AgentPool(jobs, max(agent_pool.STARTING_S, 2 * params["timeout"]))

    def finish() -> None:
        # agents whose input ends remove what they made; whoever does not, goes with its job
        agents.stop()
        jobs.close()

    hangup.watch(finish)
    return {"checks": suite.run(selected, jobs, agents)}


def main() -> None:
    suite_module.run_suite_module(SPEC, run_checks)


if __name__ == "__main__":
    main()

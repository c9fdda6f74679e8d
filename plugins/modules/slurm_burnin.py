#!/usr/bin/python
"""The jobs of a burn-in: submit, query and cancel them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_burnin
short_description: Load idle nodes through Slurm, one phase at a time
description:
  - Runs as the connecting user, on a machine with Slurm's client tools. Every call is short, so that no connection has
    to last as long as the load; an action plugin of the same name makes the calls one after the other.
  - Jobs take whole nodes that are idle now, with a high nice value, and are never started twice. No job of anybody is
    touched. The module does not fail because a node can't be loaded; its check says so.
options:
  phase:
    description: C(start) submits, C(look) asks the queue, C(drop) cancels what waits, C(stop) cancels all.
    type: str
    choices: [start, look, drop, stop]
    required: true
  token: {description: What the jobs of this burn-in are known by., type: str, required: true}
  tested: {description: "The nodes to load, for C(start).", type: list, elements: str, default: []}
  seconds: {description: How long., type: float, default: 600}
  memory_share: {description: The share of the memory that is written and verified., type: float, default: 0.7}
  partition: {description: A partition; empty for each node's own., type: str, default: ""}
  qos: {description: A QOS; empty for the user's own., type: str, default: ""}
  reservation: {description: A reservation; empty for none., type: str, default: ""}
  program: {description: "gpucheck, packed, as base64 text.", type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: End a burn-in
  deepopsctl.cluster.slurm_burnin:
    phase: stop
    token: 3f09ac
"""

RETURN = r"""
left: {description: Nodes that are left alone and why., type: dict, returned: "with C(start)"}
jobs: {description: The job ids., type: list, returned: "with C(start)"}
sent: {description: Nodes that are to be loaded., type: list, returned: "with C(start)"}
tasks: {description: Tasks of the arrays as the queue has them., type: list, returned: always}
problem: {description: Why the queue could not be asked., type: str, returned: "with C(look)"}
"""

import getpass

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_burnin import plan, queue
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import command

SPEC = {
    "phase": {"type": "str", "required": True, "choices": ["start", "look", "drop", "stop"]},
    "token": {"type": "str", "required": True, "no_log": False},
    "tested": {"type": "list", "elements": "str", "default": []},
    "seconds": {"type": "float", "default": 600},
    "memory_share": {"type": "float", "default": 0.7},
    "partition": {"type": "str", "default": ""},
    "qos": {"type": "str", "default": ""},
    "reservation": {"type": "str", "default": ""},
    "program": {"type": "str", "default": ""},
}


def start(jobs, request, params):
    """Submit, and say what was sent."""
    done = queue.submit(jobs, params["tested"], request, params["program"])
    sent = [name for batch in done.sent.batches for name in batch.nodes]
    return {"left": done.sent.left, "jobs": done.jobs, "sent": sent, "tasks": []}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    command.use_reservation(params["reservation"])
    request = plan.LoadRequest(
        params["seconds"], params["memory_share"], params["partition"], params["qos"], reservation=params["reservation"]
    )
    jobs = queue.session(params["token"], getpass.getuser(), request.minutes)
    if params["phase"] == "start":
        module.exit_json(changed=False, **start(jobs, request, params))
    if params["phase"] == "stop":
        module.exit_json(changed=False, tasks=queue.as_dicts(queue.cancel(jobs)))
    if params["phase"] == "drop":
        queue.cancel_pending(jobs)
    report, problem = queue.query_tasks(jobs)
    module.exit_json(changed=False, tasks=queue.as_dicts(report), problem=problem)


if __name__ == "__main__":
    main()

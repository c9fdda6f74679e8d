#!/usr/bin/python
"""Fetch what a burn-in's jobs wrote on this node, judge it, leave nothing behind."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_burnin
short_description: Fetch and evaluate the results of a burn-in on one node
description:
  - Runs as the connecting user, on the node itself, as homes need not be shared. The outputs are removed.
  - Without O(jobs), all outputs of the burn-in are removed and nothing is judged.
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  token: {description: What the burn-in is known by., type: str, required: true}
  seconds: {description: How long the load was to last., type: float, default: 0}
  jobs: {description: "The node's jobs: C(id), C(state) and C(used_s).", type: list, elements: dict, default: []}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Fetch the node's result
  deepopsctl.cluster.node_burnin:
    node: gpu01
    token: 3f09ac
    seconds: 600
    jobs: [{id: "12_0", state: COMPLETED, used_s: 603}]
"""

RETURN = r"""
deepops: {description: "The C(checks), and gpucheck's results as C(burnin).", type: dict, returned: always}
"""

import glob
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_burnin import queue, results

SPEC = {
    "node": {"type": "str", "required": True},
    "token": {"type": "str", "required": True, "no_log": False},
    "seconds": {"type": "float", "default": 0},
    "jobs": {"type": "list", "elements": "dict", "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    jobs = [results.Job(str(job["id"]), str(job["state"]), int(job["used_s"])) for job in params["jobs"]]
    if not jobs:
        for path in glob.glob(queue.output(params["token"], "*")):
            os.unlink(path)
        module.exit_json(changed=False, deepops={"checks": []})
    outputs = {job.id: results.collect(queue.output(params["token"], job.id)) for job in jobs}
    checks = results.evaluate(params["node"], params["seconds"], jobs, outputs)
    measured = results.documents(params["node"], outputs)
    module.exit_json(changed=False, deepops={"checks": checks, "burnin": measured})


if __name__ == "__main__":
    main()

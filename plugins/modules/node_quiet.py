#!/usr/bin/python
"""Keep jobs away from this node while something is done that they would not survive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_quiet
short_description: Empty this node of jobs, and give it back
description:
  - Runs on the node itself, with C(become). C(empty) drains it, unless it is drained or slurmd does not run, and waits
    for its jobs, which go on to their end. When O(wait) is over it fails, and the node stays drained.
  - C(back) resumes the node if it is drained for O(reason), and not otherwise; what a person drained stays so. First
    its slurmd must have registered, and its GPUs be those of O(gpus).
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  state: {description: What to do., type: str, required: true, choices: [empty, back]}
  reason: {description: Why., type: str, required: true}
  wait: {description: Seconds to wait for jobs., type: int, default: 3600}
  gpus: {description: "The node's GPUs as cluster.yml has them (filter nvidia_expected).", type: dict, default: {}}
  component: {description: Component of the step that C(back) records., type: str, default: ""}
  step: {description: Name of that step., type: str, default: ""}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Empty the node
  deepopsctl.cluster.node_quiet: {node: gpu07, state: empty, reason: new driver}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import gpu_check as nvidia_gpu_check
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import quiet as slurm_quiet


def main():
    module = AnsibleModule(
        argument_spec={
            "node": {"required": True},
            "state": {"required": True, "choices": ["empty", "back"]},
            "reason": {"required": True},
            "wait": {"type": "int", "default": 3600},
            "gpus": {"type": "dict", "default": {}},
            "component": {"default": ""},
            "step": {"default": ""},
            "digest": {"default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    name, reason = params["node"], slurm_quiet.reason_of(params["reason"])
    noted = node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json):
        if params["state"] == "empty":
            if slurm_quiet.drain(name, reason, params["wait"], module.check_mode):
                noted.did("node", name, "drain", detail=reason)
        else:
            comparison = nvidia_gpu_check.Comparison(params["gpus"], name)
            if slurm_quiet.resume(name, reason, comparison.sentence, module.check_mode):
                noted.did("node", name, "resume")
            if not module.check_mode and params["step"]:
                node_record.save(params["component"], params["step"], params["digest"], node_record.items())
    module.exit_json(changed=bool(noted.changes), changes=noted.changes)


if __name__ == "__main__":
    main()

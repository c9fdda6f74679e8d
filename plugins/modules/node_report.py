#!/usr/bin/python
"""What a node is now, in one call: its last deploy compared with reality, its versions, and Slurm's own word."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_report
short_description: Say what a node is, for C(deepopsctl status)
description:
  - Read-only. Compares the records of the last good deploy with the node, as M(node_gate) does, and names the versions.
  - On the primary controller the same call asks Slurm, as M(slurm_report) does - one task a node is all a status costs.
options:
  component: {description: Component to look at., type: str, required: true}
  digest: {description: Hash of the desired state., type: str, required: true}
  steps: {description: Steps that should have a record with that digest., type: list, elements: str, required: true}
  slurm: {description: Whether to ask slurmctld here., type: bool, default: false}
  slurm_timeout: {description: Seconds that a silent slurmctld is given., type: int, default: 30}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Ask every node
  node_report:
    component: slurm
    digest: "{{ deepops_digest }}"
    steps: "{{ deepops_slurm_steps }}"
"""

RETURN = r"""
deepops:
  description: C(node), with the comparison and C(versions), and C(slurm) where it was asked.
  type: dict
  returned: always
"""

from ansible.module_utils import node_drift, node_platform, slurm_asking
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "digest": {"required": True},
            "steps": {"type": "list", "elements": "str", "required": True},
            "slurm": {"type": "bool", "default": False},
            "slurm_timeout": {"type": "int", "default": slurm_asking.COMMAND_TIMEOUT},
        },
        supports_check_mode=True,
    )
    given = module.params
    node = node_drift.compare(given["component"], given["digest"], given["steps"])
    node["versions"] = dict(node_platform.versions(), **slurm_asking.installed_version())
    answer = {"node": node}
    if given["slurm"]:
        answer["slurm"] = slurm_asking.report(timeout=given["slurm_timeout"])
    module.exit_json(changed=False, deepops=answer)


if __name__ == "__main__":
    main()

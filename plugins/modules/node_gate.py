#!/usr/bin/python
"""Ask a node whether it still is what the last good deploy made it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_gate
short_description: Compare a node with the record of its last good deploy
description:
  - Reads the records that M(node_state) and M(slurm_config) left, and compares them with reality, which is
    package versions, file hashes with owners and modes, and the state of the units.
  - Returns the few facts that roles choose their variables by, so that no facts need to be gathered.
options:
  component: {description: Component to look at., type: str, required: true}
  digest: {description: Hash of the desired state; empty never matches., type: str, default: ""}
  steps: {description: Steps that must have a record with that digest., type: list, elements: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Compare the node with its last good deploy
  node_gate:
    component: slurm
    digest: "{{ deepops_digest }}"
    steps: [packages, hosts, munge, slurmd]
"""

RETURN = r"""
clean: {description: True when nothing has to be done., type: bool, returned: always}
reasons: {description: Why not, a sentence each., type: list, elements: str, returned: always}
"""

from ansible.module_utils import node_drift, node_platform
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "digest": {"default": ""},
            "steps": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    found = node_drift.reasons(module.params["component"], module.params["digest"], module.params["steps"])
    facts = dict(node_platform.os_release(), **node_platform.cgroup_facts())
    module.exit_json(changed=False, clean=not found, reasons=found, ansible_facts=facts)


if __name__ == "__main__":
    main()

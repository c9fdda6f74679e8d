#!/usr/bin/python
"""What one node says about itself, for the smoke suite."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_smoke
short_description: Check one node's services and munge, and report what other nodes are compared with
description:
  - Runs as the connecting user. Returns checks in the form of C(deepopsctl validate --json), and a report with a munge
    credential, hardware and versions that M(deepopsctl.cluster.slurm_smoke) compares across nodes.
  - An action plugin of the same name reads the node's clock within the bounds of a round trip and adds it.
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  units: {description: systemd units that must be active on this node., type: list, elements: str, required: true}
  compute: {description: Whether slurmd runs here., type: bool, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Look at the node
  deepopsctl.cluster.node_smoke:
    node: "{{ inventory_hostname }}"
    units: [munge, slurmd]
    compute: true
"""

RETURN = r"""
deepops: {description: The checks., type: dict, returned: always}
report: {description: Facts to be compared across nodes., type: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import nodereport


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "units": {"type": "list", "elements": "str", "required": True},
            "compute": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    checks, facts = nodereport.report(params["node"], params["units"], params["compute"])
    module.exit_json(changed=False, deepops={"checks": checks}, report=facts)


if __name__ == "__main__":
    main()

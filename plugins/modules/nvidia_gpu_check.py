#!/usr/bin/python
"""Compare a node's GPUs: what cluster.yml says, what the driver finds, what slurmd has registered."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu_check
short_description: Whether cluster.yml, the driver and slurmd agree on a node's GPUs
description:
  - Reads only, and never fails for what it finds. Where there is no driver, as with simulated GPUs, the others are
    compared.
  - C(slurmd -G) is not called, for it makes sockets and control groups next to the running slurmd's (seen with 24.11).
    What that one has registered says the same.
options:
  expected: {description: "What cluster.yml says (filter nvidia_expected).", type: dict, required: true}
  node: {description: The node's name in Slurm., type: str, required: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Compare the GPUs
  deepopsctl.cluster.nvidia_gpu_check:
    expected: "{{ slurm_nodes | deepopsctl.cluster.nvidia_expected(inventory_hostname) }}"
    node: "{{ inventory_hostname }}"
"""

RETURN = r"""
differs: {description: "What disagrees, with all three values; empty where nothing does.", type: str, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import gpu_check as nvidia_gpu_check


def main():
    module = AnsibleModule(
        argument_spec={"expected": {"type": "dict", "required": True}, "node": {"required": True}},
        supports_check_mode=True,
    )
    comparison = nvidia_gpu_check.Comparison(module.params["expected"], module.params["node"])
    differs = comparison.sentence()
    module.exit_json(changed=False, differs=differs, deepops_warnings=comparison.warnings())


if __name__ == "__main__":
    main()

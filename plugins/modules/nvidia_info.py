#!/usr/bin/python
"""Say which NVIDIA hardware a node has, and what is there to drive it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_info
short_description: NVIDIA devices, the running driver, and what would stand in its way
description:
  - Reads the PCI bus, the kernel, the firmware and the package sources. Changes nothing.
options:
  own_source:
    description: The apt source that deepopsctl writes itself; it is no source of the node's own.
    type: path
    required: true
  own_pin:
    description: apt's preferences that deepopsctl writes with a driver; without them, a driver is somebody else's.
    type: path
    required: true
  node: {description: The node's name in Slurm., type: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Look at the GPUs
  deepopsctl.cluster.nvidia_info:
    own_source: /etc/apt/sources.list.d/deepopsctl-nvidia.sources
    own_pin: /etc/apt/preferences.d/deepopsctl-nvidia
    node: gpu07
  register: found
"""

RETURN = r"""
nvidia: {description: What was found., type: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_facts
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs


def main():
    paths = {name: {"type": "path", "required": True} for name in ("own_source", "own_pin")}
    module = AnsibleModule(argument_spec=dict(paths, node={"required": True}), supports_check_mode=True)
    params = module.params
    idle = not slurm_node_jobs.why_busy(params["node"])
    module.exit_json(changed=False, nvidia=nvidia_facts.facts(params["own_source"], params["own_pin"], idle))


if __name__ == "__main__":
    main()

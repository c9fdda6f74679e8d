#!/usr/bin/python
"""Report the NVIDIA hardware of a node, its driver, and what conflicts with one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_info
short_description: Report NVIDIA devices, the driver, and what conflicts with one
description:
  - Reads the PCI bus, the kernel, the firmware and the package sources. Changes nothing.
options:
  managed_source:
    description: The apt source that deepopsctl writes, none of the node's own.
    type: path
    required: true
  managed_preferences:
    description: The apt preferences that deepopsctl writes with a driver; without them it manages none.
    type: path
    required: true
  node: {description: The node's name in Slurm., type: str, required: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Query the GPUs
  deepopsctl.cluster.nvidia_info:
    managed_source: /etc/apt/sources.list.d/deepopsctl-nvidia.sources
    managed_preferences: /etc/apt/preferences.d/deepopsctl-nvidia
    node: gpu07
  register: gpus
"""

RETURN = r"""
nvidia: {description: The devices and all that the choice of a driver needs., type: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import apt_repository as node_apt_repository
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_facts
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs


def main():
    paths = {name: {"type": "path", "required": True} for name in ("managed_source", "managed_preferences")}
    module = AnsibleModule(argument_spec=dict(paths, node={"required": True}), supports_check_mode=True)
    params = module.params
    idle = not slurm_node_jobs.why_busy(params["node"])
    facts = nvidia_facts.facts(params["managed_preferences"], idle)
    facts["sources"] = node_apt_repository.debian_sources("/etc/apt", params["managed_source"])
    module.exit_json(changed=False, nvidia=facts)


if __name__ == "__main__":
    main()

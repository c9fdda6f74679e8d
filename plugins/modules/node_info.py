#!/usr/bin/python
"""What a node is now, in one call: its last deploy compared with reality, its versions, and Slurm's own word."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Say what a node is, for C(deepopsctl status)
description:
  - Read-only. Compares the records of the last good deploy of every component with the node, as
    M(deepopsctl.cluster.drift_check) does, and
    names the versions.
  - On the primary controller the same call asks Slurm, as M(deepopsctl.cluster.slurm_info) does - one task a node is
    all a status costs.
options:
  digest: {description: Hash of the desired state., type: str, required: true}
  components:
    description: The components there are, each with the steps that should have a record with that digest.
    type: list
    elements: dict
    required: true
    suboptions:
      component: {description: Its name., type: str, required: true}
      steps: {description: None where the node gets nothing of it., type: list, elements: str, required: true}
  slurm: {description: Whether to ask slurmctld here., type: bool, default: false}
  slurm_timeout: {description: Seconds that a silent slurmctld is given., type: int, default: 30}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Query every node
  deepopsctl.cluster.node_info:
    digest: "{{ deepops_digest }}"
    components:
      - {component: slurm, steps: [common, slurmd]}
"""

RETURN = r"""
deepops:
  description: C(node), with the comparison by C(components) and C(versions), and C(slurm) where it was asked.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    drift as node_drift,
    platform as node_platform,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import query as slurm_query


def main():
    component = {"component": {"required": True}, "steps": {"type": "list", "elements": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "digest": {"required": True},
            "components": {"type": "list", "elements": "dict", "required": True, "options": component},
            "slurm": {"type": "bool", "default": False},
            "slurm_timeout": {"type": "int", "default": slurm_query.COMMAND_TIMEOUT},
        },
        supports_check_mode=True,
    )
    params = module.params
    compared = node_drift.compare(params["components"], params["digest"])
    versions = dict(node_platform.versions(), **slurm_query.installed_version())
    answer = {"node": {"components": compared, "versions": versions}}
    if params["slurm"]:
        answer["slurm"] = slurm_query.report(timeout=params["slurm_timeout"])
    module.exit_json(changed=False, deepops=answer)


if __name__ == "__main__":
    main()

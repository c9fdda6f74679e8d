#!/usr/bin/python
"""Ask the primary controller, in one call, what Slurm says now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_info
short_description: Nodes, jobs and versions as slurmctld has them now
description:
  - Read-only. Meant for the primary controller, with C(become) - Slurm may hide other users' jobs from everybody else.
  - A slurmctld that does not answer, or is not installed yet, is an answer and no failure.
options:
  wait: {description: Seconds to go on asking a slurmctld that does not answer., type: int, default: 0}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Ask Slurm
  deepopsctl.cluster.slurm_info:
"""

RETURN = r"""
deepops:
  description: >-
    C(slurm), with C(installed), C(controller_up), C(error), C(nodes), C(jobs), C(versions)
    and C(reserved), the nodes that are reserved until they are tested.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import query as slurm_query


def main():
    module = AnsibleModule(argument_spec={"wait": {"type": "int", "default": 0}}, supports_check_mode=True)
    module.exit_json(changed=False, deepops={"slurm": slurm_query.report(module.params["wait"])})


if __name__ == "__main__":
    main()

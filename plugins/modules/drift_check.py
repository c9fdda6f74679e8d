#!/usr/bin/python
"""Ask a node whether it still is what the last good deploy made it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drift_check
short_description: Compare a node with the record of its last good deploy
description:
  - Reads the records that M(deepopsctl.cluster.node_state) and M(deepopsctl.cluster.slurm_config) left, and compares
    them with reality, which is
    package versions, file hashes with owners and modes, and the state of the units.
  - Returns the few facts that roles choose their variables by, so that no facts need to be gathered.
options:
  component: {description: Component to check., type: str, required: true}
  digests:
    description: Hash of the desired state of each component; one that is missing or empty never matches.
    type: dict
    default: {}
  steps:
    description: >-
      Steps that must have a record with the digest of O(component); none where nothing of the component is to be here.
    type: list
    elements: str
    required: true
  run:
    description:
      - The components that are deployed one right after the other, in their order, with the steps of each on this node.
        Those after I(component) are compared, too, up to the first that has anything to do here; those without steps
        wherever they are.
    type: list
    elements: dict
    default: []
    suboptions:
      component: {description: Its name., type: str, required: true}
      steps: {description: None where the node gets nothing of it., type: list, elements: str, required: true}
  registered: {description: Nodes that slurmctld here must have in service., type: list, elements: str, default: []}
  foreign:
    description: Whether to look for a Slurm, too, on a node that the component was never deployed on.
    type: bool
    default: false
  needs:
    description: What the settings of Slurm need of this node (filter slurm_needs); what is missing is in C(unmet).
    type: dict
    default: {}
  requires:
    description: >-
      What has to be so before anything is deployed here (C(families), C(python), C(core), C(name), C(address),
      C(slurm)). A node that has work to do and does not meet it fails.
    type: dict
    default: {}
  status:
    description: >-
      The arguments of M(node_info) that C(deepopsctl status) asks this node with. Nothing is done with them here:
      deepopsctl keeps them, so that it needs no Ansible to ask.
    type: dict
    default: {}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Compare the node with its last good deploy
  deepopsctl.cluster.drift_check:
    component: slurm
    digests: "{{ deepops_digests }}"
    steps: [packages, hosts, munge, slurmd]
"""

RETURN = r"""
clean: {description: True when nothing has to be done., type: bool, returned: always}
settled:
  description: Other components of I(run) that have nothing to do here.
  type: list
  elements: str
  returned: always
recorded: {description: "Steps with a record here, wanted or not.", type: list, elements: str, returned: always}
reasons: {description: "Why not, a sentence each.", type: list, elements: str, returned: always}
unregistered: {description: Nodes that Slurm itself keeps from serving., type: list, elements: str, returned: always}
restore_begun:
  description: Whether C(deepopsctl restore) was begun here and has not ended; only with O(foreign).
  type: bool
  returned: always
unmet:
  description: What of O(needs) is not here, each with C(key), C(message), and C(new) where it was not asked for before.
  type: list
  elements: dict
  returned: always
slurm_ids: {description: The ids of the user slurm and its group., type: list, elements: int, returned: always}
foreign:
  description: A Slurm that no deploy made, with C(what) there is, its C(cluster) and the hash of its C(munge_key).
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import gate as node_gate


def main() -> None:
    step = {"component": {"required": True}, "steps": {"type": "list", "elements": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "digests": {"type": "dict", "default": {}},
            "steps": {"type": "list", "elements": "str", "required": True},
            "run": {"type": "list", "elements": "dict", "default": [], "options": step},
            "registered": {"type": "list", "elements": "str", "default": []},
            "foreign": {"type": "bool", "default": False},
            "needs": {"type": "dict", "default": {}},
            "requires": {"type": "dict", "default": {}},
            "status": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    answer = node_gate.answer(module.params)
    if "msg" in answer:
        module.fail_json(**answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()

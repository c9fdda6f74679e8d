#!/usr/bin/python
"""Whether a node has its storage mounted as declared, for the storage suite."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_storage_check
short_description: Compare a node's mounts with what cluster.yml declares
description:
  - Runs as root, as it tries what root may do on a server that squashes root. Every touch of a file system is made by a
    process of its own with a time limit, so that one that hangs hangs nothing else.
  - An action plugin of the same name makes O(entries) out of C(storage_mounts), and asks no node that has none.
  - The module does not fail because a check fails; the checks say so themselves.
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  entries: {description: What must be mounted., type: list, elements: dict, required: true}
  user: {description: The ordinary user where SUDO_USER is not set., type: str, default: ""}
  writes: {description: Whether the user tries to write here; jobs do on compute nodes., type: bool, default: false}
  timeout: {description: The longest that a file system may take to answer (seconds)., type: float, default: 15}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Query the node's storage
  deepopsctl.cluster.node_storage_check:
    node: "{{ inventory_hostname }}"
    mounts: "{{ storage_mounts }}"
"""

RETURN = r"""
deepops: {description: The checks., type: dict, returned: always}
seen: {description: What trials may go on with, by entry., type: dict, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_storagecheck import inputs, node_checks

SPEC = {
    "node": {"type": "str", "required": True},
    "entries": {"type": "list", "elements": "dict", "required": True},
    "user": {"type": "str", "default": ""},
    "writes": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 15},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    user = os.environ.get("SUDO_USER", "") or params["user"]
    # in check mode nothing is tried, only looked at
    writes = params["writes"] and not module.check_mode
    node = node_checks.Node(params["node"], user, params["timeout"], os.urandom(3).hex(), node_checks.table, writes)
    result = node.run_checks(inputs.expected(params["entries"]))
    seen = {name: entry._asdict() for name, entry in result.seen.items()}
    module.exit_json(changed=False, deepops={"checks": result.checks}, seen=seen)


if __name__ == "__main__":
    main()

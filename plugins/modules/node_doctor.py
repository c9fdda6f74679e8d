#!/usr/bin/python
"""What one node says about itself before anything is done to it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_doctor
short_description: Report everything about a node that a deploy depends on
description:
  - Reads only, and judges nothing. What is found is compared with the cluster's description and with other nodes on the
    control machine (C(deepopsctl doctor)).
  - An action plugin of the same name adds when the node was asked and whether its sudo works.
options:
  names: {description: 'All nodes, as NAME=ADDRESS words, or a bare NAME.', type: str, default: ""}
  ports: {description: 'TCP ports that the daemons of a cluster listen on, by daemon.', type: dict, default: {}}
  outside:
    description:
      - Repositories that a deploy would add here, C(what) they are for and their C(url). Whoever asks of them gets no
        answer is reported; those with one of the files C(unless) are in use already, and not asked.
    type: list
    elements: dict
    default: []
  settings: {description: 'Settings that the judgement depends on, handed back as they are.', type: dict, default: {}}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Look at the node
  deepopsctl.cluster.node_doctor:
    names: "ctl1=192.0.2.1 gpu01=192.0.2.11"
    ports: {slurmd: 6818}
"""

RETURN = r"""
deepops: {description: 'The facts, under the key C(doctor).', type: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_doctor import report


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "str", "default": ""},
            "ports": {"type": "dict", "default": {}},
            "outside": {"type": "list", "elements": "dict", "default": []},
            "settings": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    params = module.params
    expected = {name: address for name, _equals, address in (word.partition("=") for word in params["names"].split())}
    # a controller may have a range of ports: it listens on the first of them at least
    ports = {daemon: int(str(port).partition("-")[0]) for daemon, port in params["ports"].items()}
    result = report.report(expected, list(ports.values()), params["outside"])
    module.exit_json(changed=False, deepops={"doctor": dict(result, ports=ports, settings=params["settings"])})


if __name__ == "__main__":
    main()

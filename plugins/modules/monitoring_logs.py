#!/usr/bin/python
"""Whether what the nodes have just logged is in the journals of the monitoring host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_logs
short_description: Look for a line of every node in the collected journals
description:
  - Waits until each node's line has arrived, at most O(timeout) seconds. Reads journals only, and changes nothing.
  - The module does not fail because a check fails; the checks say so themselves.
options:
  line: {description: What each node has logged before its own name., type: str, required: true}
  judged: {description: The nodes whose lines should be there., type: list, elements: str, required: true}
  folder: {description: Where the journals of other hosts are stored., type: path, required: true}
  timeout: {description: The longest that a line may take (seconds)., type: float, default: 60}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Query the collected log lines
  deepopsctl.cluster.monitoring_logs:
    line: validation 7d1f3a
    judged: [ctl1, gpu01]
    folder: /var/log/journal/remote
"""

RETURN = r"""
deepops: {description: The checks., type: dict, returned: always}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_monitoring import logs

SPEC = {
    "line": {"type": "str", "required": True},
    "judged": {"type": "list", "elements": "str", "required": True},
    "folder": {"type": "path", "required": True},
    "timeout": {"type": "float", "default": 60},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    checks = (
        []
        if module.check_mode
        else logs.evaluate(params["folder"], params["line"], params["judged"], params["timeout"])
    )
    module.exit_json(changed=False, deepops={"checks": checks})


if __name__ == "__main__":
    main()

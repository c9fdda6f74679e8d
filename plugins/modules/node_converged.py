#!/usr/bin/python
"""Verify that the units that a component installed on a node stay up."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_converged
short_description: Verify that the units of a component stay up
description:
  - Reads the records that M(deepopsctl.cluster.node_state) and others left of the component, and watches the units in
    them. Each must have
    run for some seconds without a restart, and listen on the port that it was deployed with.
  - Waits only where a unit was started a moment ago. A unit that systemd restarts over and over is listed with the last
    lines of its log, and its step is done again by the next deploy.
options:
  component: {description: Component whose units are watched., type: str, required: true}
  steps: {description: Steps whose units are watched., type: list, elements: str, required: true}
  excused:
    description: Units that wait for a node that is not in this run; what they do is not a failure.
    type: list
    elements: str
    default: []
  timeout: {description: Seconds to wait for units that are starting., type: int, default: 45}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Verify that what was deployed stays up
  deepopsctl.cluster.node_converged:
    component: monitoring
    steps: [node, prometheus]
"""

RETURN = r"""
units: {description: The units that were watched., type: list, elements: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import converged as node_converged


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "steps": {"type": "list", "elements": "str", "required": True},
            "excused": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 45},
        },
        supports_check_mode=True,
    )
    params = module.params
    steps = [] if module.check_mode else params["steps"]
    try:
        units = node_converged.watch(params["component"], steps, params["timeout"], params["excused"])
    except node_converged.NotConvergedError as error:
        module.fail_json(msg=str(error), hint=error.hint)
    module.exit_json(changed=False, units=units)


if __name__ == "__main__":
    main()

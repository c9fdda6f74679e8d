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

from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    record as node_record,
    services as node_services,
)

LINES = 5


def records_of(component: str, steps: Sequence[str]) -> dict[str, Any]:
    """{step: its items} of those that have a record here."""
    records = {step: node_record.load(component, step) for step in steps}
    return {step: record["items"] for step, record in records.items() if record}


def sentence(unit: str, why: str) -> str:
    """Why a unit does not run, with the last that it has logged."""
    words = node_services.own_journal_tail(unit, LINES) or node_services.journal_tail(unit, LINES)
    return f"{unit} {why}" + (f":\n{words}" if words else "")


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
    component, excused = module.params["component"], module.params["excused"]
    records = records_of(component, module.params["steps"]) if not module.check_mode else {}
    units = {
        name: step
        for step, items in records.items()
        for name, running in items["units"].items()
        if running and name not in excused
    }
    ports = {name: port for items in records.values() for name, port in items.get("ports", {}).items()}
    problems = node_services.Watch(sorted(units), ports).problems(module.params["timeout"])
    for step in {units[name] for name in problems}:
        node_record.save(component, step, "", {})
    if problems:
        module.fail_json(
            msg="\n".join(sentence(name, why) for name, why in problems.items()),
            hint=f"see `journalctl -u {' -u '.join(problems)}` on the node; the next deploy checks it again",
        )
    module.exit_json(changed=False, units=sorted(units))


if __name__ == "__main__":
    main()

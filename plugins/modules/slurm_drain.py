#!/usr/bin/python
"""Drain nodes, or resume those that deepopsctl drained."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_drain
short_description: Drain nodes, or resume those that deepopsctl drained
description:
  - Meant for the primary controller, with C(become). Jobs that run are left to their end.
  - A node that somebody else drained keeps their reason and is never resumed here; it is refused by name, with who and
    why, and the others are done.
options:
  nodes: {description: Compute nodes., type: list, elements: str, required: true}
  state: {description: What to do., type: str, choices: [drain, resume], required: true}
  reason: {description: Why; needed to drain., type: str, default: ""}
  refusals: {description: Why nodes can't be resumed, by name., type: dict, default: {}}
  wait: {description: Seconds to go on asking a slurmctld that does not answer., type: int, default: 20}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Drain a node
  deepopsctl.cluster.slurm_drain: {nodes: [gpu03], state: drain, reason: "new fan"}
"""

RETURN = r"""
deepops:
  description: C(drain), a list with C(name), C(action) and C(message) for each node, and C(slurm) as it is afterwards.
  type: dict
  returned: always
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    drain as slurm_drain,
    query as slurm_query,
)


def update(names, wanted, reason):
    """Update slurmctld: (whether to try again, error text where it refused)."""
    words = ["nodename=%s" % ",".join(names), "state=%s" % wanted]
    words += ["reason=%s" % reason] if wanted == "drain" else []
    worked, output = slurm_query.run("scontrol", "update", *words)
    return worked is False, "" if worked else " ".join(output.split()) or "scontrol update failed"


def answering(module):
    """Slurm's current state."""
    report = slurm_query.report(module.params["wait"])
    if not report["controller_up"]:
        module.fail_json(
            msg="slurmctld does not answer: %s" % report["error"],
            hint="`deepopsctl status` shows more; `deepopsctl deploy` starts what should run",
        )
    return report


def decide_and_update(module, reason):
    """(decisions, names of the nodes that changed); decided again before each try, for others drain nodes as well."""
    params, deadline = module.params, time.monotonic() + module.params["wait"]
    wanted = params["state"]
    while True:
        known = {node["name"]: node for node in answering(module)["nodes"]}
        decisions = slurm_drain.decide(wanted, params["nodes"], known, reason, params["refusals"])
        names = [entry["name"] for entry in decisions if entry["action"] == wanted]
        if module.check_mode or not names:
            return decisions, names
        again, refusal = update(names, wanted, reason)
        if not refusal:
            return decisions, names
        if not again or time.monotonic() >= deadline:
            module.fail_json(msg="scontrol could not %s %s: %s" % (wanted, ",".join(names), refusal))
        time.sleep(0.5)


def main():
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "str", "required": True},
            "state": {"choices": ["drain", "resume"], "required": True},
            "reason": {"default": ""},
            "refusals": {"type": "dict", "default": {}},
            "wait": {"type": "int", "default": 20},
        },
        required_if=[("state", "drain", ["reason"])],
        supports_check_mode=True,
    )
    wanted = module.params["state"]
    reason = slurm_drain.our_reason(module.params["reason"])
    decisions, names = decide_and_update(module, reason)
    after = slurm_query.report(module.params["wait"])
    detail = reason if wanted == "drain" else ""
    module.exit_json(
        changed=bool(names),
        changes=[{"kind": "node", "name": name, "action": wanted, "detail": detail} for name in names],
        deepops={"drain": decisions, "slurm": after},
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Wait until Slurm itself says that the nodes are registered as configured."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_converged
short_description: Wait until nodes have registered with slurmctld
description:
  - The deploy is over when slurmctld has heard from every node, not when the last file is written.
  - A node that does not register is named with Slurm's own reason. Nodes that somebody drained count as
    registered; they stay drained.
options:
  nodes: {description: Nodes that must register., type: list, elements: str, required: true}
  timeout: {description: Seconds to wait., type: int, default: 60}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Wait until the nodes have registered
  slurm_converged: {nodes: [gpu01, gpu02]}
"""

RETURN = r"""
states: {description: State of each node as slurmctld has it., type: dict, returned: always}
"""

import re
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

# a node in one of these, or with one of these flags, has not registered as configured
BAD = re.compile(r"DOWN|UNKNOWN|INVAL|FAIL(?!ING)|NOT_RESPONDING|NO_RESPOND|\*")


def node_states():
    """{node: (state, reason)} from `scontrol show node`, {} while slurmctld does not answer."""
    result = subprocess.run(
        ["scontrol", "--oneliner", "show", "node"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=60,
        check=False,
    )
    found = {}
    for line in result.stdout.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        state = re.search(r" State=(\S+)", line)
        reason = re.search(r" Reason=(.*?)(?: \[|$)", line)
        if name and state:
            found[name.group(1)] = (state.group(1), reason.group(1) if reason else "")
    return found


def unfinished(wanted, states):
    """{node: what is wrong} for the nodes that are not there yet."""
    found = {}
    for name in wanted:
        state, reason = states.get(name, ("not in slurm.conf", ""))
        if name not in states or BAD.search(state):
            found[name] = "%s%s" % (state, " (%s)" % reason if reason else "")
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, states={})
    deadline = time.monotonic() + module.params["timeout"]
    while True:
        states = node_states()
        missing = unfinished(module.params["nodes"], states)
        if not missing:
            break
        if time.monotonic() > deadline:
            sentences = ["%s: %s" % item for item in sorted(missing.items())]
            module.fail_json(
                msg="not registered with slurmctld after %d s: %s" % (module.params["timeout"], "; ".join(sentences)),
                hint="see `journalctl -u slurmd` on %s" % ", ".join(sorted(missing)[:5]),
            )
        time.sleep(0.3)
    module.exit_json(changed=False, states={name: states[name][0] for name in module.params["nodes"]})


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ask the primary controller, in one call, what Slurm says now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_report
short_description: Nodes, jobs and versions as slurmctld has them now
description:
  - Read-only. Meant for the primary controller, with C(become) - Slurm may hide other users' jobs from everybody else.
  - A slurmctld that does not answer, or is not installed yet, is an answer and no failure.
options:
  wait: {description: Seconds to go on asking a slurmctld that does not answer., type: int, default: 0}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Ask Slurm
  slurm_report:
"""

RETURN = r"""
deepops:
  description: C(slurm), with C(installed), C(controller_up), C(error), C(nodes), C(jobs) and C(versions).
  type: dict
  returned: always
"""

import subprocess
import time

from ansible.module_utils import slurm_reading
from ansible.module_utils.basic import AnsibleModule

# above Slurm's own MessageTimeout (10 s): it says what is wrong better than a signal does
COMMAND_TIMEOUT = 30
SHOW_NODES = ("scontrol", "--oneliner", "--details", "show", "node")
SHOW_JOBS = ("squeue", "--noheader", "--all", "--format=%s" % slurm_reading.JOB_FORMAT)


def ask(*command):
    """(worked, output); None instead of worked where the command is not installed."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        return None, "%s is not installed" % command[0]
    except subprocess.TimeoutExpired:
        return False, "%s did not answer within %d s" % (command[0], COMMAND_TIMEOUT)
    return done.returncode == 0, done.stdout


def report(wait):
    """The whole answer."""
    deadline = time.monotonic() + wait
    while True:
        answered, shown = ask(*SHOW_NODES)
        listed, queue = ask(*SHOW_JOBS) if answered else (False, "")
        if (answered and listed) or answered is None or time.monotonic() >= deadline:
            break
        time.sleep(0.5)
    up = bool(answered and listed)
    return {
        "installed": answered is not None,
        "controller_up": up,
        "error": "" if up else " ".join((queue if answered else shown).split()),
        "nodes": slurm_reading.nodes(shown) if up else [],
        "jobs": slurm_reading.jobs(queue) if up else [],
        "versions": versions(up) if answered is not None else {},
    }


def versions(up):
    """What is installed, and what runs: they differ between an upgrade of the packages and the restart."""
    _worked, installed = ask("scontrol", "--version")
    # `slurm 24.11.5`; Debian writes `slurm-wlm 24.11.5`
    found = {"slurm": installed.split()[-1]} if installed.split() else {}
    if up:
        _worked, config = ask("scontrol", "show", "config")
        running = slurm_reading.running_version(config)
        found.update({"slurmctld": running} if running else {})
    return found


def main():
    module = AnsibleModule(argument_spec={"wait": {"type": "int", "default": 0}}, supports_check_mode=True)
    module.exit_json(changed=False, deepops={"slurm": report(module.params["wait"])})


if __name__ == "__main__":
    main()

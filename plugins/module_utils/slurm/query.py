"""Ask slurmctld; that it does not answer, or is not there yet, is an answer."""

from __future__ import annotations

import re
import time

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    hostlist as slurm_hostlist,
    output as slurm_output,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.node_states import RESERVATION

# above Slurm's own MessageTimeout (10 s): it says what is wrong better than a signal does
COMMAND_TIMEOUT = 30
SHOW_NODES = ("scontrol", "--oneliner", "--details", "show", "node")
# of several controllers, the one in control (role slurm_guard)
IN_CONTROL = ("/usr/local/sbin/deepops-slurm-controller", "active")
SHOW_JOBS = ("squeue", "--noheader", "--all", "--sort=i", f"--format={slurm_output.JOB_FORMAT}")


def run(*command, timeout=COMMAND_TIMEOUT):
    """(worked, output); None instead of worked where the command is not installed."""
    result = node_command.run_merged(command, timeout, env=node_command.slurm_environment())
    if result.status == node_command.MISSING:
        return None, f"{command[0]} is not installed"
    if result.status == node_command.TIMED_OUT:
        return False, "%s did not answer within %d s" % (command[0], timeout)
    return result.ok, result.message


def report(wait=0, timeout=COMMAND_TIMEOUT):
    """The whole answer; `wait` seconds are spent on a slurmctld that says no, `timeout` on one that says nothing."""
    deadline = time.monotonic() + wait
    while True:
        # a ping is refused at once where slurmctld is down; every other command goes on trying for ten seconds
        answered, shown = run("scontrol", "ping", timeout=timeout)
        controllers = slurm_output.pinged(shown)
        # one of several is enough
        if answered or any(controllers.values()):
            answered, shown = run(*SHOW_NODES, timeout=timeout)
        listed, queue = run(*SHOW_JOBS, timeout=timeout) if answered else (False, "")
        if (answered and listed) or answered is None or time.monotonic() >= deadline:
            break
        time.sleep(0.5)
    up, nodes, jobs, error = bool(answered and listed), [], [], ""
    try:
        nodes, jobs = (slurm_output.nodes(shown), slurm_output.jobs(queue)) if up else ([], [])
    except slurm_output.UnreadableError as unreadable:
        up, error = False, str(unreadable)
    return {
        "installed": answered is not None,
        "controller_up": up,
        "error": "" if up else error or sentence(queue if answered else shown),
        "controllers": controllers,
        "in_control": run(*IN_CONTROL, timeout=timeout)[1].strip() if len(controllers) > 1 else "",
        "nodes": nodes,
        "jobs": jobs,
        "reserved": reserved_nodes() if up else [],
        "versions": versions(up) if answered is not None else {},
    }


def reserved_nodes():
    """The nodes in the reservation for nodes that are not tested yet."""
    worked, shown = run("scontrol", "--oneliner", "show", "reservation", RESERVATION)
    nodes = re.search(r" Nodes=(\S+)", shown) if worked else None
    return slurm_hostlist.expand(nodes.group(1)) if nodes and nodes.group(1) != "(null)" else []


def sentence(text):
    """A command's output in one line, without the stars that `scontrol ping` adds."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip("* ") and not line.startswith("**"))


def versions(up):
    """What is installed, and what runs: they differ between an upgrade of the packages and the restart."""
    result = installed_version()
    if up:
        _worked, config = run("scontrol", "show", "config")
        running = slurm_output.running_version(config)
        result.update({"slurmctld": running} if running else {})
    return result


def installed_version():
    """{slurm: version} of the tools on this node, {} without any; Debian writes `slurm-wlm 24.11.5`."""
    worked, shown = run("scontrol", "--version")
    return {"slurm": shown.split()[-1]} if worked and shown.split() else {}

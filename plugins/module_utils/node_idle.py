"""Whether anything may be done to a node that would end its jobs."""

from __future__ import annotations

import glob

from ansible.module_utils import node_units, nvidia_node
from ansible.module_utils.deepops_doctor import command

RUNNING = "jobs run on it"


def has_steps(root="/proc"):
    """Whether a step of a job is here. With cgroup v2, `slurmstepd infinity` always is: it holds the place of all."""
    for path in glob.glob(root + "/[0-9]*/comm"):
        if command.read(path) == "slurmstepd":
            words = command.read(path[: -len("comm")] + "cmdline").split("\0")
            if words[1:2] != ["infinity"]:
                return True
    return False


def why_busy(node):
    """Why a job may be lost: one runs, or may start; '' where slurmd is off, or the node is drained and empty."""
    if has_steps():
        return RUNNING
    if not node_units.is_active(node_units.show(["slurmd.service"]).get("slurmd.service", {})):
        return ""
    drained = nvidia_node.is_drained(nvidia_node.output_of(["scontrol", "--oneliner", "show", "node", node]))
    return "" if drained else "Slurm may start jobs on it"

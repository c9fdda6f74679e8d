"""Whether anything may be done to a node that would end its jobs."""

from __future__ import annotations

import glob

from ansible.module_utils import node_units, nvidia_node
from ansible.module_utils.deepops_doctor import command

RUNNING = "jobs run on it"


def why_busy(node):
    """Why a job may be lost: one runs, or may start; '' where slurmd is off, or the node is drained and empty."""
    if "slurmstepd" in (command.read(path) for path in glob.glob("/proc/[0-9]*/comm")):
        return RUNNING
    if not node_units.is_active(node_units.show(["slurmd.service"]).get("slurmd.service", {})):
        return ""
    drained = nvidia_node.is_drained(nvidia_node.output_of(["scontrol", "--oneliner", "show", "node", node]))
    return "" if drained else "Slurm may start jobs on it"

"""Whether anything may be done to a node that would end its jobs."""

from __future__ import annotations

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import services as node_units
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    facts as nvidia_node,
    mig as nvidia_mig_driver,
)

RUNNING = "jobs run on it"


def why_busy(node):
    """Why a job may be lost: one runs, or may start; '' where slurmd is off, or the node is drained and empty."""
    if nvidia_mig_driver.has_steps():
        return RUNNING
    if not node_units.is_active(node_units.show(["slurmd.service"]).get("slurmd.service", {})):
        return ""
    drained = nvidia_node.is_drained(nvidia_node.output_of(["scontrol", "--oneliner", "show", "node", node]))
    return "" if drained else "Slurm may start jobs on it"

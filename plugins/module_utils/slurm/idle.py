"""Whether anything may be done to a node that would end its jobs."""

from __future__ import annotations

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import services as node_services
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    facts as nvidia_facts,
    mig as nvidia_mig,
)

RUNNING = "jobs run on it"


def why_busy(node):
    """Why a job may be lost: one runs, or may start; '' where slurmd is off, or the node is drained and empty."""
    if nvidia_mig.has_steps():
        return RUNNING
    if not node_services.is_active(node_services.show(["slurmd.service"]).get("slurmd.service", {})):
        return ""
    drained = nvidia_facts.is_drained(nvidia_facts.output_of(["scontrol", "--oneliner", "show", "node", node]))
    return "" if drained else "Slurm may start jobs on it"

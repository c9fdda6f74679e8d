"""Query all nodes at once and build the status from their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deepopsctl.run.command_line import USUAL_SSH, RunRequest
from deepopsctl.run.events import Event
from deepopsctl.run.workspace import Workspace
from deepopsctl.slurm.hardware import load_hardware
from deepopsctl.status.cluster import COMMAND, PLAYBOOK, ClusterStatus, examine
from deepopsctl.status.last_runs import last_runs


def status_request(base: RunRequest, node_timeout: int) -> RunRequest:
    """The query of all nodes; a node without an answer for `node_timeout` seconds counts as not answering."""
    return replace(
        base,
        playbook=PLAYBOOK,
        command=COMMAND,
        extra_vars={"deepops_node_timeout": node_timeout},
        # open connections are reused; a new one gets half of the time
        ssh={**USUAL_SSH, "ConnectTimeout": str(max(node_timeout // 2, 1))},
    )


def query_status(request: RunRequest, watch: Callable[[Event], None] | None = None) -> ClusterStatus:
    """The cluster's status; too short for a progress view, but `watch` may follow it."""
    from deepopsctl.run.runner import run_readonly

    directory = request.directory
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    outcome = run_readonly(request, watch)
    return examine(outcome, cluster, load_hardware(directory.hardware), last_runs(Workspace(directory.runs)))

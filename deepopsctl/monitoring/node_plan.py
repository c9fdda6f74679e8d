"""What one node needs for monitoring: the sum of the pieces below. Pure."""

from __future__ import annotations

from collections.abc import Callable

from deepopsctl.monitoring import (
    alert_drain,
    gpu_exporters,
    job_report,
    job_summaries,
    logs,
    mysqld_exporter,
    node_exporter,
    node_metrics,
    slurm_metrics,
)
from deepopsctl.monitoring.resources import MonitoredNode, Needs, combine

# Each is called for each node and returns Needs() if it has nothing to do there. A new piece is a module
# with such a function, and a line here.
PIECES: tuple[Callable[[MonitoredNode], Needs], ...] = (
    node_exporter.needs,
    node_metrics.needs,
    slurm_metrics.needs,
    job_report.needs,
    job_summaries.needs,
    mysqld_exporter.needs,
    logs.needs,
    gpu_exporters.needs,
    alert_drain.needs,
)


def plan_node(node: MonitoredNode) -> Needs:
    """Everything that one node gets, in one call of a module."""
    return combine(piece(node) for piece in PIECES)

"""What one machine needs for all of monitoring that is on every kind of machine: the sum of the pieces below. Pure."""

from __future__ import annotations

from collections.abc import Callable

from deepopsctl.monitoring import (
    alertdrain,
    gpuexporters,
    jobreport,
    jobsummaries,
    logs,
    mysqldexporter,
    nodeexporter,
    nodemetrics,
    slurmmetrics,
)
from deepopsctl.monitoring.needs import Machine, Needs, together

# Each is asked for each machine and answers with Needs() where it has nothing to do there. A new piece is a module
# beside this one with such a function, and a line here.
PIECES: tuple[Callable[[Machine], Needs], ...] = (
    nodeexporter.needs,
    nodemetrics.needs,
    slurmmetrics.needs,
    jobreport.needs,
    jobsummaries.needs,
    mysqldexporter.needs,
    logs.needs,
    gpuexporters.needs,
    alertdrain.needs,
)


def plan_node(machine: Machine) -> Needs:
    """Everything that one machine gets, in one call of a module."""
    return together(piece(machine) for piece in PIECES)

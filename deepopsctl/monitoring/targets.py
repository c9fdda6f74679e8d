"""What Prometheus scrapes: one file for all of its jobs, a line for each exporter. Pure.

Prometheus watches the file: a node that comes or goes is a line on one machine, and nothing is restarted or read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from deepopsctl.monitoring import gpuexporters, grafana, mysqldexporter, nodeexporter, server, slurmmetrics
from deepopsctl.monitoring.needs import Machine
from deepopsctl.monitoring.target import Target
from deepopsctl.ours import HEADER
from deepopsctl.yamlout import flow

# which of the jobs below a line is for; Prometheus drops labels that begin so when it has chosen
EXPORTER = "__exporter"

# Each is asked for each machine. A new exporter is a function in its piece, and a line here.
SOURCES: tuple[Callable[[Machine], Iterable[Target]], ...] = (
    nodeexporter.targets,
    mysqldexporter.targets,
    slurmmetrics.targets,
    gpuexporters.targets,
    server.targets,
    grafana.targets,
)


def targets_of(machine: Machine) -> list[Target]:
    """Everything that is scraped on one machine."""
    return [target for source in SOURCES for target in source(machine)]


def render(machines: Iterable[Machine]) -> str:
    """The file, machines in the given order."""
    lines = [
        f"- {flow({'targets': [target.address], 'labels': _labels(machine, target)})}"
        for machine in machines
        for target in targets_of(machine)
    ]
    return HEADER + "".join(f"{line}\n" for line in lines)


def _labels(machine: Machine, target: Target) -> dict[str, str]:
    named = {"cluster": machine.cluster, "node": machine.name, "instance": machine.name}
    return {EXPORTER: target.exporter, **named, **target.labels}

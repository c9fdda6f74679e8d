"""`job-report`, the users' command, wherever Slurm's commands are."""

from __future__ import annotations

from deepopsctl import jobreport, nodeprograms
from deepopsctl.monitoring.needs import File, Machine, Needs

PROGRAM = "/usr/local/bin/job-report"
_GROUPS = frozenset(("slurm_controller", "slurm_compute", "slurm_login"))


def needs(machine: Machine) -> Needs:
    """The program, and nothing that runs by itself."""
    if not machine.groups & _GROUPS:
        return Needs()
    return Needs(
        files=tuple(File(each.path, each.content, each.mode) for each in nodeprograms.program(jobreport, PROGRAM))
    )

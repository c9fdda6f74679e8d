"""`job-report`, the users' command, wherever Slurm's commands are; and what jobs find at the end of their output."""

from __future__ import annotations

from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs
from deepopsctl.node_programs import job_report
from deepopsctl.slurm.job_hooks import PIECES

PROGRAM = "/usr/local/bin/job-report"
ENDING = "/usr/local/sbin/deepops-job-ending"
SWITCH = "job_endings"
_GROUPS = frozenset(("slurm_controller", "slurm_compute", "slurm_login"))


def needs(node: MonitoredNode) -> Needs:
    """Programs, and nothing that runs by itself."""
    if not node.groups & _GROUPS:
        return Needs()
    programs = program_files(job_report, PROGRAM)
    pieces: tuple[File, ...] = ()
    if node.runs_jobs and node.is_on(SWITCH):
        # its launcher; the modules are the same
        programs += program_files(job_report, ENDING, module="ending")[-1:]
        # before the job map forgets the job
        pieces = (File(f"{PIECES}/epilog.d/10-job-ending", f"#!/bin/sh\nexec {ENDING}\n", "0755"),)
    return Needs(files=(*programs, *pieces))

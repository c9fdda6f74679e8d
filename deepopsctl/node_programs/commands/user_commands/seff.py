"""`seff JOBID`: the efficiency of a job in the lines that users and their scripts know; `job-report` shows more.

The lines are those of Slurm's contribs/seff, which Debian does not package.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from ..._shared import slurm_output
from ..job_report import advice, asking, records
from ..job_report.asking import Run, UnansweredError
from ..job_report.cli import job_number
from ..job_report.measures import Report, measure

OK, UNKNOWN = 0, 1
# monitoring installs it
JOB_REPORT = "/usr/local/bin/job-report"
_OWNER_FIELDS = ("Cluster", "Group")
_UNKNOWN = "unknown"
_UNITS = ("KB", "MB", "GB", "TB")


def main(arguments: list[str] | None = None, run: Run = asking.run_command) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="seff", description="CPU and memory efficiency of a job.")
    parser.add_argument("job", metavar="JOBID", type=job_number, help="123, or 123_4 of a job array")
    options = parser.parse_args(arguments)
    try:
        reports = [measure(job) for job in asking.jobs(options.job, run)]
        owner = run(asking.sacct(_OWNER_FIELDS, "--allocations", "--jobs=" + options.job)) if reports else ""
    except UnansweredError as error:
        sys.stderr.write(f"error: {error}\n")
        return UNKNOWN
    if not reports:
        sys.stderr.write("Job not found.\n")
        return UNKNOWN
    cluster, _, group = owner.partition("\n")[0].partition(records.DELIMITER)
    texts = ("\n".join(_lines(each, slurm_output.clean(cluster), slurm_output.clean(group))) for each in reports)
    sys.stdout.write("\n\n".join(texts) + "\n")
    return OK


def _lines(report: Report, cluster: str, group: str) -> Iterator[str]:
    job = report.job
    yield f"Job ID: {job.number}"
    if job.id != job.number:
        yield f"Array Job ID: {job.id}"
    yield f"Cluster: {cluster}"
    yield f"User/Group: {job.user}/{group}"
    yield f"State: {job.state} (exit code {job.exit_code.partition(':')[0] or '0'})"
    if not job.began:
        yield f"Efficiency not available for jobs in the {job.state} state."
        return
    if job.node_count > 1:
        yield f"Nodes: {job.node_count}"
        yield f"Cores per node: {job.cpus // job.node_count}"
    else:
        yield f"Cores: {job.cpus}"
    walltime = job.elapsed * job.cpus
    used = job.cpu_seconds
    yield f"CPU Utilized: {_UNKNOWN if used is None else slurm_output.duration(int(used))}"
    efficiency = _UNKNOWN if used is None or not walltime else f"{100 * used / walltime:.2f}%"
    yield f"CPU Efficiency: {efficiency} of {slurm_output.duration(walltime)} core-walltime"
    yield f"Job Wall-clock time: {slurm_output.duration(job.elapsed)}"
    memory = report.memory.used if report.memory else job.memory_used
    yield f"Memory Utilized: {_UNKNOWN if memory is None else size(memory)}"
    if job.memory_asked:
        efficiency = _UNKNOWN if memory is None else f"{100 * memory / job.memory_asked:.2f}%"
        yield f"Memory Efficiency: {efficiency} of {size(job.memory_asked)}"
    if job.out_of_memory:
        yield f"WARNING: {advice.more_memory(job)}."
    if job.runs:
        yield "WARNING: Efficiency statistics may be misleading for RUNNING jobs."
    if os.path.exists(JOB_REPORT):
        yield f"More, with GPUs and advice: job-report {job.id}"


def size(value: float) -> str:
    """`1.21 GB`, in units of 1,024."""
    value, unit = value / 1024, 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.2f} {_UNITS[unit]}"

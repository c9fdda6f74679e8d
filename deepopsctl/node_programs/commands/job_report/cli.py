"""Requested and used resources of a job: time, CPUs, memory, GPUs; and what to request next time."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from typing import Any

from .advice import advise
from .asking import Run, UnansweredError, jobs, run_command
from .measures import Measure, Report, measure
from .text import render

OK, UNKNOWN = 0, 1
_WANTED = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="job-report", description=__doc__)
    parser.add_argument(
        "job", metavar="JOBID", type=job_number, help="123, of a job array 123_4, of a heterogeneous job 123+1"
    )
    parser.add_argument("--json", action="store_true", help="one object on stdout: seconds, bytes, cores")
    return parser


def job_number(text: str) -> str:
    """A job's number as people type it, for argparse."""
    if not _WANTED.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a job's number")
    return text


def main(arguments: list[str] | None = None, run: Run = run_command) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        reports = [measure(job) for job in jobs(options.job, run)]
    except UnansweredError as error:
        sys.stderr.write(f"error: {error}\n")
        return UNKNOWN
    if not reports:
        sys.stderr.write(f"error: job {options.job}: Slurm knows none that you may see\n")
        return UNKNOWN
    if options.json:
        sys.stdout.write(json.dumps({"schema": 1, "command": "job-report", "ok": True, "jobs": _all(reports)}) + "\n")
    else:
        sys.stdout.write("\n".join(render(report) for report in reports))
    return OK


def _all(reports: list[Report]) -> list[dict[str, Any]]:
    return [document(report) for report in reports]


def document(report: Report) -> dict[str, Any]:
    """One job as JSON has it."""
    job, summary = report.job, report.job.summary
    facts = {
        key: getattr(job, key)
        for key in (
            "id",
            "number",
            "name",
            "user",
            "account",
            "partition",
            "state",
            "exit_code",
            "start",
            "end",
            "nodes",
            "gpus",
        )
    }
    measures = {key: _sides(getattr(report, key)) for key in ("time", "cpu", "memory", "gpu", "gpu_memory")}
    return {
        **facts,
        "running": job.runs,
        "elapsed": job.elapsed,
        **measures,
        "per_node": [asdict(each) for each in summary.nodes] if summary else [],
        "per_gpu": [asdict(each) for each in summary.gpus] if summary else [],
        "advice": advise(report),
    }


def _sides(value: Measure | None) -> dict[str, float] | None:
    return None if value is None else {"used": value.used, "asked": value.asked}

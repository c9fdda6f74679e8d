"""Requested and used resources of a job: time, CPUs, memory, GPUs; and what to request next time."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from typing import Any, Dict, List, Optional

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
        raise argparse.ArgumentTypeError("{!r} is no job's number".format(text))
    return text


def main(arguments: Optional[List[str]] = None, run: Run = run_command) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        reports = [measure(job) for job in jobs(options.job, run)]
    except UnansweredError as error:
        sys.stderr.write("error: {}\n".format(error))
        return UNKNOWN
    if not reports:
        sys.stderr.write("error: job {}: Slurm knows none that you may see\n".format(options.job))
        return UNKNOWN
    if options.json:
        sys.stdout.write(json.dumps({"schema": 1, "command": "job-report", "ok": True, "jobs": _all(reports)}) + "\n")
    else:
        sys.stdout.write("\n".join(render(report) for report in reports))
    return OK


def _all(reports: List[Report]) -> List[Dict[str, Any]]:
    return [_document(report) for report in reports]


def _document(report: Report) -> Dict[str, Any]:
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


def _sides(value: Optional[Measure]) -> Optional[Dict[str, float]]:
    return None if value is None else {"used": value.used, "asked": value.asked}

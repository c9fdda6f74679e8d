"""Why a job waits, when it is expected, and what to change to start sooner; why it failed, and what to do."""

from __future__ import annotations

import argparse
import json
import sys

from ..job_report.cli import job_number
from .asking import Ask, NoJobError, ask_slurm
from .explanation import document, explain, render

OK, UNKNOWN = 0, 1


def main(arguments: list[str] | None = None, ask: Ask = ask_slurm) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="why", description=__doc__)
    parser.add_argument(
        "job", metavar="JOBID", type=job_number, help="123, of a job array 123_4, of a heterogeneous job 123+1"
    )
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    options = parser.parse_args(arguments)
    try:
        answer = explain(options.job, ask)
    except NoJobError as error:
        sys.stderr.write(f"error: {error}\n")
        return UNKNOWN
    text = json.dumps(document(answer)) if options.json else "\n".join(render(answer))
    sys.stdout.write(text + "\n")
    return OK

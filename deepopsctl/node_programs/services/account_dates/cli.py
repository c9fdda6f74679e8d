"""`deepops-account-dates`: open and close Slurm accounts of groups and people whose day has come. Run by a timer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Callable

from ..._shared import command, settings, slurm_client, slurm_output
from ..._shared.settings import SettingsError
from . import plan

CONFIG = "/etc/deepopsctl/account-dates.json"
OK, FAILED, INVALID = 0, 1, 3
LIMIT_S = 120
# of one person, so many are listed
MOST_JOBS = 10
Run = Callable[[Sequence[str]], command.Result]


def run_command(argv: Sequence[str]) -> command.Result:
    """Run sacctmgr."""
    return slurm_client.ask(argv, LIMIT_S)


def main(arguments: list[str] | None = None, run: Run = run_command, now: datetime | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-account-dates", description=__doc__.partition(": ")[2])
    parser.add_argument("--config", default=CONFIG, help="groups and people (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print what is due, change nothing")
    options = parser.parse_args(arguments)
    try:
        declared = settings.load(options.config)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    where = "cluster=" + str(declared["cluster"])
    columns = "format=" + ",".join(plan.COLUMNS)
    shown = run(slurm_client.sacctmgr("association", "where", where, "wopl", columns))
    if not shown.ok:
        sys.stderr.write(f"error: {shown.failure}\n")
        return FAILED
    # days are UTC's, as in shadow(5)
    today = (now or datetime.now(timezone.utc)).date()
    failures = 0
    for words in plan.changes(declared, plan.associations(shown.output), today):
        sys.stdout.write(" ".join(words) + "\n")
        place = words.index("set")
        argv = ["sacctmgr", "--immediate", "modify", *words[:place], where, *words[place:]]
        answer = None if options.dry_run else run(argv)
        if answer is not None and not answer.ok:
            sys.stderr.write(f"error: {answer.failure}\n")
            failures += 1
    for line in jobs_of(plan.expired(declared["people"], today), run):
        sys.stdout.write(line + "\n")
    return FAILED if failures else OK


def jobs_of(names: Sequence[str], run: Run) -> list[str]:
    """A line for everybody who has expired and still has jobs: those that run continue, the others wait for ever."""
    if not names:
        return []
    shown = run(slurm_client.squeue("%u|%i|%T", "--user=" + ",".join(names)))
    jobs: dict[str, list[str]] = {}
    for name, job, state in slurm_output.rows(shown.output, "%u|%i|%T") if shown.ok else []:
        jobs.setdefault(name, []).append(f"{job} {state}")
    return [
        f"{name} has expired and still has jobs: {_some(listed)} (scancel --user={name})"
        for name, listed in sorted(jobs.items())
    ]


def _some(jobs: Sequence[str]) -> str:
    more = len(jobs) - MOST_JOBS
    return ", ".join([*jobs[:MOST_JOBS], *([f"and {more} more"] if more > 0 else [])])

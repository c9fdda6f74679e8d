"""`usage`: what you and your groups have used: this year in reference GPU units (RGU), and jobs of the last days."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..._shared.slurm_output import clean, whole
from ..._shared.values import format_share, format_time
from ..account_usage import DIRECTORY
from ..job_report import asking, history
from ..job_report.asking import Run, UnansweredError
from ..job_report.cli import document as job_report
from ..job_report.measures import measure

OK, NOTHING = 0, 1
DAYS, MOST_JOBS = 30, 200
_HEADER = ("account", "jobs", "RGU-hours", "RGU-years", "share", "target", "of target", "core-years")
_RECENT = ("account", "user", "jobs", "CPU-hours", "GPU-hours", "of these seen", "busy", "idle", "")
_JOBS = ("job", "name", "state", "ended", "ran", "CPUs", "memory", "GPUs busy")


def main(arguments: list[str] | None = None, directory: str = DIRECTORY, run: Run = asking.run_command) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    name = pwd.getpwuid(os.getuid()).pw_name
    counted = _counted(os.path.join(directory, name + ".json"))
    document = counted or {"schema": 1, "cluster": "", "user": name, "start": None, "end": None, "accounts": []}
    own = [each["name"] for each in document["accounts"]]
    document.update(recent=None, jobs=[])
    problem = ""
    try:
        own = history.accounts_of(name, run)
        if set(options.accounts) <= set(own):
            document["recent"] = _recent(options, own, run)
            document["jobs"] = _jobs(options, own, run) if options.jobs else []
    except UnansweredError as error:
        problem = str(error)
    strange = [each for each in options.accounts if each not in own]
    if strange:
        problem = f"{clean(strange[0])} is not an account of yours: {', '.join(own) or 'none'}"
    if problem:
        sys.stderr.write(f"error: {problem}\n")
        if strange or counted is None:
            return NOTHING
    if options.accounts:
        document["accounts"] = [each for each in document["accounts"] if each["name"] in options.accounts]
    text = json.dumps(document) if options.json else "\n".join(_text(document, options))
    sys.stdout.write(text + "\n")
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="usage",
        description=__doc__.partition(": ")[2],
        epilog="target: what your account would use if everybody used their share; it is not a limit. "
        "seen: the hours of which monitoring has a summary; idle: those in which no program used the GPU.",
    )
    parser.add_argument("accounts", nargs="*", metavar="ACCOUNT", help="only these of your accounts")
    parser.add_argument("--users", action="store_true", help="also a line for each user whose use you may see")
    parser.add_argument("--jobs", action="store_true", help=f"also the newest {MOST_JOBS} jobs that have ended")
    parser.add_argument("--days", type=_days, default=DAYS, help="how far back jobs are read (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    return parser


def _days(text: str) -> int:
    days = whole(text)
    if not days or days > history.MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1 and {history.MOST_DAYS} days")
    return days


def _counted(path: str) -> dict[str, Any] | None:
    """What root counts every hour; None where jobs are not billed, or nothing was counted yet."""
    try:
        with open(path, encoding="utf-8") as stream:
            document: dict[str, Any] = json.load(stream)
    except (OSError, ValueError):
        return None
    return document


def _recent(options: argparse.Namespace, own: Sequence[str], run: Run) -> dict[str, Any]:
    """What the jobs of the last days had and used, without `--users` one's own."""
    wanted = options.accounts or own
    totals = history.sums(run, options.days, wanted if options.users else ())
    rows = [
        {"account": account, "user": user, **history.numbers(total)}
        for (account, user), total in sorted(totals.items())
        if not options.accounts or account in options.accounts
    ]
    return {"days": options.days, "rows": rows}


def _jobs(options: argparse.Namespace, own: Sequence[str], run: Run) -> list[dict[str, Any]]:
    accounts = (options.accounts or own) if options.users else ()
    ended, _more = history.newest(run, options.days, MOST_JOBS, accounts)
    return [job_report(measure(job)) for job in ended if not options.accounts or job.account in options.accounts]


def _text(document: dict[str, Any], options: argparse.Namespace) -> Iterator[str]:
    if document["accounts"]:
        yield from render(document, users=options.users)
        yield ""
    if document["recent"] is None:
        return
    yield f"Jobs that have ended in the last {options.days} days"
    yield ""
    yield from _columns([_RECENT, *map(_recent_row, document["recent"]["rows"])], 2)
    if document["jobs"]:
        yield ""
        yield from _columns([_JOBS, *map(_job_row, document["jobs"])], 4)


def _recent_row(row: dict[str, Any]) -> Sequence[str]:
    seen, busy = row["gpu_hours_seen"], row["gpu_hours_busy"]
    gpus = [f"{row[key]:,.1f}" for key in ("gpu_hours", "gpu_hours_seen", "gpu_hours_busy", "gpu_hours_idle")]
    share = format_share(busy, seen) if seen else ""
    shown = [*gpus, share] if row["gpu_hours"] else [""] * 5
    return [row["account"], row["user"], f"{row['jobs']:,}", f"{row['cpu_hours']:,.1f}", *shown]


def _job_row(job: dict[str, Any]) -> Sequence[str]:
    end = time.strftime("%Y-%m-%d %H:%M", time.localtime(job["end"])) if job["end"] else ""
    parts = [format_share(part["used"], part["asked"]) if part else "" for part in map(job.get, _PARTS)]
    return [job["id"], job["name"][:30], job["state"][:20], end, format_time(job["elapsed"]), *parts]


_PARTS = ("cpu", "memory", "gpu")


def render(document: dict[str, Any], *, users: bool) -> Iterator[str]:
    """The table."""
    start, end = (time.localtime(document[key]) for key in ("start", "end"))
    first, last = time.strftime("%Y-%m-%d", start), time.strftime("%Y-%m-%d %H:%M", end)
    yield f"{document['cluster']}, {first} to {last}"
    yield ""
    rows = [row for account in document["accounts"] for row in _rows(account, document["user"], users=users)]
    # without CPU partitions there is nothing to show
    width = len(_HEADER) if any(row[-1] not in ("", "0.0000") for row in rows) else len(_HEADER) - 1
    yield from _columns([_HEADER[:width], *(row[:width] for row in rows)], 1)


def _columns(table: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """Lines of a table: the first columns are texts, the others numbers."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = [cell.ljust(size) for cell, size in zip(row[:texts], widths)]
        cells += [cell.rjust(size) for cell, size in zip(row[texts:], widths[texts:])]
        yield "  ".join(cells).rstrip()


def _rows(account: dict[str, Any], user: str, *, users: bool) -> Iterator[Sequence[str]]:
    total, target = account["total"], account["target_rgu_years"]
    share = f"{account['share']:.1%}"
    if total is None:
        # what others use is hidden here (PrivateData): so is their sum
        yield [account["name"], "", "", "", share, f"{target:.4f}", "", ""]
    else:
        part = f"{total['rgu_years'] / target:.0%}" if target else ""
        jobs, hours, years, cores = _used(total)
        yield [account["name"], jobs, hours, years, share, f"{target:.4f}", part, cores]
    jobs, hours, years, cores = _used(account["own"])
    yield ["  " + user + " (you)", jobs, hours, years, "", "", "", cores]
    for each in account["users"] if users else ():
        if each["name"] != user:
            jobs, hours, years, cores = _used(each)
            yield ["  " + clean(each["name"]), jobs, hours, years, "", "", "", cores]


def _used(use: dict[str, Any]) -> Sequence[str]:
    return (
        f"{use['jobs']:,}",
        f"{use['rgu_hours']:,.2f}",
        f"{use['rgu_years']:.4f}",
        f"{use['core_years']:.4f}",
    )

"""`usage`: what you and your groups have used this year, in reference GPU units (RGU), counted every hour."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..._shared.slurm_output import clean
from ..account_usage import DIRECTORY

OK, NOTHING = 0, 1
_HEADER = ("account", "jobs", "RGU-hours", "RGU-years", "share", "target", "of target", "core-years")


def main(arguments: list[str] | None = None, directory: str = DIRECTORY) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="usage",
        description=__doc__.partition(": ")[2],
        epilog="target: what your account would use if everybody used their share; it is not a limit.",
    )
    parser.add_argument("accounts", nargs="*", metavar="ACCOUNT", help="only these of your accounts")
    parser.add_argument("--users", action="store_true", help="also a line for each user whose use you may see")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    options = parser.parse_args(arguments)
    name = pwd.getpwuid(os.getuid()).pw_name
    try:
        with open(os.path.join(directory, name + ".json"), encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError):
        sys.stderr.write(
            f"error: nothing was counted for {name} yet: it is counted every hour, for users with a Slurm account\n"
        )
        return NOTHING
    known = [each["name"] for each in document["accounts"]]
    strange = [each for each in options.accounts if each not in known]
    if strange:
        sys.stderr.write(f"error: {clean(strange[0])} is not an account of yours: {', '.join(known) or 'none'}\n")
        return NOTHING
    if options.accounts:
        document["accounts"] = [each for each in document["accounts"] if each["name"] in options.accounts]
    sys.stdout.write(
        json.dumps(document) + "\n" if options.json else "\n".join(render(document, users=options.users)) + "\n"
    )
    return OK


def render(document: dict[str, Any], *, users: bool) -> Iterator[str]:
    """The table."""
    start, end = (time.localtime(document[key]) for key in ("start", "end"))
    first, last = time.strftime("%Y-%m-%d", start), time.strftime("%Y-%m-%d %H:%M", end)
    yield f"{document['cluster']}, {first} to {last}"
    yield ""
    rows = [row for account in document["accounts"] for row in _rows(account, document["user"], users=users)]
    # without CPU partitions there is nothing to show
    width = len(_HEADER) if any(row[-1] not in ("", "0.0000") for row in rows) else len(_HEADER) - 1
    table = [_HEADER[:width], *(row[:width] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(width)]
    for row in table:
        yield "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(row[1:], widths[1:]))]
        ).rstrip()


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

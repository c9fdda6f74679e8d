"""What you have on each file system, and how much it may be."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from ..._shared.settings import SettingsError
from . import members
from .apart import ask_all
from .rows import CONFIG, Person, Row, load
from .sources import ask
from .table import render

OK, INCOMPLETE, USAGE, INVALID = 0, 1, 2, 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="diskusage_report", description=__doc__)
    parser.add_argument("--user", help="another user (for root)")
    parser.add_argument("--per_user", action="store_true", help="also what each member of your groups has in theirs")
    parser.add_argument("--all_users", action="store_true", help="the same, with members who have little")
    parser.add_argument("--json", action="store_true", help="one object on stdout, sizes in bytes")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="how long a file system may take to answer")
    parser.add_argument("--config", default=CONFIG, help="what is mounted (default: %(default)s)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = load(options.config)
        person = _person(options.user)
    except (SettingsError, KeyError) as error:
        sys.stderr.write(f"error: {error.args[0]}\n")
        return INVALID
    limit = options.limit or config.limit_s
    rows = ask_all(config.file_systems, lambda each: ask(each, person), limit, person.name)
    per_user = options.per_user or options.all_users
    others = (
        ask_all(config.file_systems, lambda each: members.read(each, person), limit, person.name) if per_user else []
    )
    if options.json:
        sys.stdout.write(_document([*rows, *others], person))
    else:
        sys.stdout.write(render(rows, int(time.time())))
        sys.stdout.write(members.render(others, everybody=options.all_users) if per_user else "")
    return INCOMPLETE if any(row.problem for row in rows) else OK


def _person(name: str | None) -> Person:
    account = pwd.getpwuid(os.getuid()) if name is None else pwd.getpwnam(name)
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    return Person(account.pw_name, account.pw_uid, groups, account.pw_uid == os.getuid())


def _document(rows: Sequence[Row], person: Person) -> str:
    complete = not any(row.problem for row in rows)
    report = {"schema": 1, "command": "diskusage_report", "ok": complete, "user": person.name}
    return json.dumps({**report, "rows": [asdict(row) for row in rows]}) + "\n"

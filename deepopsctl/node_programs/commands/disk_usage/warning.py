"""`deepops-quota-warning`: at login, what of a user's quotas is nearly used up; nothing where there is room."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator, Sequence

from ..._shared.settings import SettingsError
from .apart import ask_all
from .rows import CONFIG, WHOLE, Amount, Person, Row, load
from .sources import ask
from .table import count, size

# percent of a quota, and how long a login may wait for file systems
FULL, LIMIT_S = 90, 0.5


def main(config: str = CONFIG) -> int:
    """Run it; a login continues whatever happens here."""
    try:
        account = pwd.getpwuid(os.getuid())
        person = Person(account.pw_name, account.pw_uid, os.getgroups())
        rows = ask_all(load(config).file_systems, lambda each: ask(each, person), LIMIT_S, person.name)
    except (SettingsError, KeyError, OSError):
        return 0
    sys.stdout.write("".join(line + "\n" for line in lines(rows)))
    return 0


def lines(rows: Sequence[Row]) -> list[str]:
    """A line for each amount above the threshold."""
    return [
        f"Quota of {printable(row.path)}: {amount}"
        for row in rows
        if row.kind != WHOLE and not row.problem
        for amount in _amounts(row)
    ]


def printable(text: str) -> str:
    """A path as a terminal can show it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _amounts(row: Row) -> Iterator[str]:
    space, files = row.usage.space, row.usage.files
    if percent := _percent(space):
        yield f"{size(space.used)} of {size(space.limit)} used ({percent} %)"
    if percent := _percent(files):
        yield f"{count(files.used)} of {count(files.limit)} files ({percent} %)"


def _percent(amount: Amount) -> int | None:
    if amount.used is None or not amount.limit:
        return None
    percent = 100 * amount.used // amount.limit
    return percent if percent > FULL else None

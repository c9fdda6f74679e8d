"""Names and ids of users and groups, as this node's name service answers; a directory service counts, too."""

from __future__ import annotations

import contextlib
import datetime
import grp
import os
import pwd
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

Entry = Mapping[str, Any]
# of a list of sentences, so many are shown
MOST_NAMED = 5
EPOCH = datetime.date(1970, 1, 1)
_Answer = Callable[[Any], Optional[Any]]


def first_few(sentences: Sequence[str]) -> str:
    """The first of them in one text, and how many there are more."""
    more = len(sentences) - MOST_NAMED
    return "; ".join([*sentences[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def expiry(day: str) -> str:
    """A date as shadow(5) has it: days since 1970; '' for never."""
    return str((datetime.date(*map(int, day.split("-"))) - EPOCH).days) if day else ""


def today() -> str:
    """The day by which accounts expire, as shadow(5) counts them: in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def is_over(entry: Entry, key: str, day: str) -> bool:
    """Whether that day of an entry has come."""
    return bool(entry.get(key)) and str(entry[key]) <= day


def conflicts(people: Sequence[Entry], groups: Sequence[Entry]) -> list[str]:
    """Sentences for names and ids of people.yml that another account has here."""
    users = [(str(person["name"]), int(person["uid"])) for person in people]
    # everybody has a group of the same name and id
    all_groups = [*users, *((str(group["name"]), int(group["gid"])) for group in groups)]
    local_users = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    local_groups = {entry.gr_name: entry.gr_gid for entry in grp.getgrall()}
    connecting = (os.environ.get("SUDO_USER", ""), "root")
    return [
        *(f"{name} is the user that deepopsctl connects as" for name, _uid in users if name in connecting),
        *_differences("user", users, local_users, uid_of, _user_with),
        *_differences("group", all_groups, local_groups, gid_of, _group_with),
    ]


def _differences(
    noun: str, wanted: Sequence[tuple[str, int]], local: dict[str, int], id_of: _Answer, name_of: _Answer
) -> Iterator[str]:
    owners = {number: name for name, number in local.items()}
    for name, number in wanted:
        actual = local[name] if name in local else id_of(name)
        if actual not in (None, number):
            yield f"the {noun} {name} has the id {actual} here, {number} in people.yml"
        owner = owners[number] if number in owners else name_of(number)
        if owner not in (None, name):
            yield f"the id {number} of the {noun} {name} is that of {owner} here"


def uid_of(name: str) -> int | None:
    """A user's id; None if there is no such user."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name).pw_uid
    return None


def gid_of(name: str) -> int | None:
    """A group's id; None for none."""
    with contextlib.suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return None


def _user_with(number: int) -> str | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return None


def _group_with(number: int) -> str | None:
    with contextlib.suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return None

"""What sacctmgr has to change today, for the groups and people whose day has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

# a limit that lets no job in, or starts none, and no limit
CLOSED, OPEN = "0", "-1"
# shares of a project out of its time, and of one that declares none
NO_SHARE, ONE_SHARE = "0", 1
COLUMNS = ("Account", "User", "Partition", "GrpSubmit", "MaxSubmit", "Share", "GrpJobs", "MaxJobs")

Entry = Mapping[str, Any]


class Association(NamedTuple):
    """A row of `sacctmgr show association`; of an account where `user` is empty."""

    account: str
    user: str
    partition: str
    group_submit: str
    user_submit: str
    share: str
    group_jobs: str
    user_jobs: str


def associations(text: str) -> list[Association]:
    """The rows; what is not a row is left out."""
    rows = (line.split("|") for line in text.splitlines())
    return [Association(*row) for row in rows if len(row) == len(COLUMNS)]


def changes(settings: Mapping[str, Sequence[Entry]], present: Sequence[Association], today: date) -> list[list[str]]:
    """Words of `sacctmgr modify` that are due."""
    return [*_groups(settings["groups"], present, today), *_people(settings["people"], present, today)]


def _groups(groups: Sequence[Entry], present: Sequence[Association], today: date) -> Iterator[list[str]]:
    accounts: dict[str, Association] = {row.account: row for row in present if not row.user}
    for group in groups:
        # a group without days is the deploy's alone, and so is one that Slurm does not have yet
        if group["name"] not in accounts or not (group.get("start") or group.get("end")):
            continue
        is_open = _has_come(group.get("start", ""), today, default=True) and not _has_come(group.get("end", ""), today)
        account = accounts[group["name"]]
        words = []
        for option, value in (("GrpSubmitJobs", account.group_submit), ("GrpJobs", account.group_jobs)):
            if is_open == (value == CLOSED):
                words.append(option + "=" + (OPEN if is_open else CLOSED))
        if is_open == (account.share == NO_SHARE):
            words.append(f"Fairshare={group.get('shares', ONE_SHARE) if is_open else NO_SHARE}")
        if words:
            yield ["account", "where", "name=" + group["name"], "set", *words]


def _people(people: Sequence[Entry], present: Sequence[Association], today: date) -> Iterator[list[str]]:
    """Who has expired; a later day is for the next deploy to read."""
    # a job that requeues itself is submitted already, and so is the rest of an array
    open_users = {row.user for row in present if row.user and (row.user_submit, row.user_jobs) != (CLOSED, CLOSED)}
    for name in expired(people, today):
        if name in open_users:
            yield ["user", "where", "name=" + name, "set", "MaxSubmitJobs=" + CLOSED, "MaxJobs=" + CLOSED]


def expired(people: Sequence[Entry], today: date) -> list[str]:
    """Names of those whose day has come."""
    return [person["name"] for person in people if _has_come(person.get("expires", ""), today)]


def _has_come(day: str, today: date, *, default: bool = False) -> bool:
    return date.fromisoformat(day) <= today if day else default

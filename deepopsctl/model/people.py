"""The people of a cluster and their groups, as people.yml declares them. Frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from deepopsctl.model.directory import Directory

# Each group has an account for jobs with GPUs and one for jobs without, below its own.
PARTS = ("cpu", "gpu")
FIRST_ID = 60_001
# limits that let no job in and start none that is in (one that requeues itself, the rest of an array), of an account
# and of a user in one, by the columns of sacctmgr; a project out of its time takes no part in the fair share
CLOSED_ACCOUNT: Mapping[str, str] = MappingProxyType({"GrpSubmit": "0", "GrpJobs": "0", "Share": "0"})
CLOSED_USER: Mapping[str, str] = MappingProxyType({"MaxSubmit": "0", "MaxJobs": "0"})


@dataclass(frozen=True, slots=True)
class Group:
    """A project: a UNIX group and Slurm accounts. Open from `start` on and before `end`, where they are set."""

    name: str
    gid: int
    pi: str = ""
    start: date | None = None
    end: date | None = None
    shares: int = 0

    def is_open(self, today: date) -> bool:
        """Whether jobs may be charged to it."""
        return (self.start is None or self.start <= today) and (self.end is None or today < self.end)


@dataclass(frozen=True, slots=True)
class Person:
    """One user. The first of `groups` is the default account; `expires` is the first day without access."""

    name: str
    uid: int
    groups: tuple[str, ...]
    full_name: str = ""
    mail: str = ""
    keys: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    expires: date | None = None
    sponsor: str = ""

    def is_active(self, today: date) -> bool:
        """Whether the account is open."""
        return self.expires is None or today < self.expires


@dataclass(frozen=True, slots=True)
class People:
    """Everybody, in the order of people.yml."""

    groups: tuple[Group, ...] = ()
    people: tuple[Person, ...] = ()
    # new people and groups get ids from this one up
    first_id: int = FIRST_ID
    directory: Directory | None = None

    def accounts(self) -> Iterator[str]:
        """All Slurm accounts: of its groups, and of those of the directory service."""
        followed = self.directory.accounts if self.directory else ()
        for name in (*(group.name for group in self.groups), *(entry.account for entry in followed)):
            yield from accounts_of(name)

    def variable(self) -> dict[str, object]:
        """The inventory variable `environment_people`: what nodes and Slurm need, without empty values."""
        return {
            "groups": [_filled(_group(group)) for group in self.groups],
            "people": [_filled(_person(person)) for person in self.people],
        }


def accounts_of(group: str) -> Iterator[str]:
    """The Slurm accounts of a group: its own, then those that jobs are charged to."""
    yield group
    yield from (f"{group}_{part}" for part in PARTS)


def _group(group: Group) -> dict[str, object]:
    return {"name": group.name, "gid": group.gid, "shares": group.shares, "start": _text(group.start),
            "end": _text(group.end)}  # fmt: skip


def _person(person: Person) -> dict[str, object]:
    return {
        "name": person.name,
        "uid": person.uid,
        "groups": list(person.groups),
        "full_name": person.full_name,
        "keys": list(person.keys),
        "shell": person.shell,
        "expires": _text(person.expires),
    }


def _text(day: date | None) -> str:
    return day.isoformat() if day else ""


def _filled(entry: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if value}

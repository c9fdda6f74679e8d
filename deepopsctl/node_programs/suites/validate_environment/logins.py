"""Whether people get in where they may, and no one else does: keys, expiry, homes, on one node."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import command, identities
from ..._shared.checks import FAIL, Check
from .checks import check
from .identities import summary

KEYS, EXPIRY, HOMES = "environment-keys", "environment-expiry", "environment-homes"
KEYS_DIRECTORY = "/etc/ssh/deepopsctl/keys"
SHADOW, EXPIRY_FIELD = "/etc/shadow", 7

Entry = Mapping[str, Any]


def verify_logins(node: str, people: Sequence[Entry]) -> list[Check]:
    """One check each for the keys, the expiry and the homes of all people."""
    return [
        _keys(node, people),
        summary(EXPIRY, node, len(people), list(_expiry_differences(people, _expiry_days()))),
        summary(HOMES, node, len(people), list(_home_differences(people))),
    ]


def _keys(node: str, people: Sequence[Entry]) -> Check:
    with_keys = [person for person in people if person.get("keys")]
    wanted = KEYS_DIRECTORY + "/%u"
    output = command.run(["sshd", "-T"], 15).output
    if wanted not in output.split():
        return check(KEYS, node, FAIL, "not read", wanted, message=f"sshd reads no keys from {KEYS_DIRECTORY}")
    return summary(KEYS, node, len(with_keys), list(_key_differences(with_keys)))


def _key_differences(people: Sequence[Entry]) -> Iterator[str]:
    for person in people:
        path = os.path.join(KEYS_DIRECTORY, person["name"])
        try:
            with open(path, encoding="utf-8") as stream:
                lines = [line for line in stream.read().splitlines() if line and not line.startswith("#")]
        except (OSError, ValueError):
            yield f"{path} can't be read"
            continue
        if lines != list(person["keys"]):
            yield f"{path} has other keys than people.yml"


def _expiry_days() -> dict[str, str]:
    with open(SHADOW, encoding="utf-8", errors="replace") as stream:
        rows = [line.split(":") for line in stream]
    return {row[0]: row[EXPIRY_FIELD] for row in rows if len(row) > EXPIRY_FIELD}


def _expiry_differences(people: Sequence[Entry], days: Mapping[str, str]) -> Iterator[str]:
    for person in people:
        day = person.get("expires", "")
        wanted = identities.expiry(day)
        # a user of a directory service has no line here
        if days.get(person["name"], wanted) != wanted:
            yield f"{person['name']} expires on another day than {day or 'never'}"


def _home_differences(people: Sequence[Entry]) -> Iterator[str]:
    for person in people:
        try:
            entry = pwd.getpwnam(person["name"])
        except KeyError:
            continue
        try:
            status = os.stat(entry.pw_dir)
        except OSError as error:
            yield f"{entry.pw_dir}: {error.strerror}"
            continue
        if status.st_uid != entry.pw_uid or not stat.S_ISDIR(status.st_mode):
            yield f"{entry.pw_dir} is not a directory of {entry.pw_name}"

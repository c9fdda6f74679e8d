"""Whether each person and group has the declared ids on this node, as the name service answers."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import identities
from ..._shared.checks import FAIL, PASS, Check
from .checks import check

USERS, GROUPS = "environment-ids", "environment-groups"

Entry = Mapping[str, Any]


def verify_ids(node: str, people: Mapping[str, Sequence[Entry]]) -> list[Check]:
    """One check for the ids of all people, one for their groups."""
    group_ids = {group["name"]: int(group["gid"]) for group in people["groups"]}
    declared = people["people"]
    return [
        summary(USERS, node, len(declared), [text for person in declared for text in _id_differences(person)]),
        summary(GROUPS, node, len(declared), list(_group_differences(declared, group_ids))),
    ]


def summary(name: str, node: str, count: int, differences: Sequence[str]) -> Check:
    """One check about everybody, which names the first few differences."""
    if not differences:
        return check(name, node, PASS, count, count, "people")
    shown = identities.first_few(differences)
    return check(name, node, FAIL, f"{len(differences)} differences", "none", message=shown)


def _id_differences(person: Entry) -> Iterator[str]:
    name, uid = person["name"], int(person["uid"])
    try:
        actual = pwd.getpwnam(name).pw_uid
    except KeyError:
        yield f"there is no user {name}"
        return
    if actual != uid:
        yield f"{name} has the id {actual}, people.yml says {uid}"
    owner = pwd.getpwuid(actual).pw_name
    if owner != name:
        yield f"the id {actual} of {name} is also that of {owner}"


def _group_differences(people: Sequence[Entry], group_ids: dict[str, int]) -> Iterator[str]:
    for name, gid in group_ids.items():
        try:
            actual = grp.getgrnam(name).gr_gid
        except KeyError:
            yield f"there is no group {name}"
            continue
        if actual != gid:
            yield f"the group {name} has the id {actual}, people.yml says {gid}"
    for person in people:
        try:
            entry = pwd.getpwnam(person["name"])
        except KeyError:
            continue
        members = set(os.getgrouplist(entry.pw_name, entry.pw_gid))
        missing = [name for name in person["groups"] if group_ids[name] not in members]
        if missing:
            yield f"{person['name']} is not in {', '.join(missing)}"

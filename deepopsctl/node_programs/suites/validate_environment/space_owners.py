"""Whether the directories of people and groups are theirs on this node: of many people, not of one."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import identities
from ..._shared.checks import Check
from .identities import summary

OWNERS = "environment-space-owners"
# each node compares other people, so that a large site is covered by all of them
MOST = 200

Entry = Mapping[str, Any]
# a directory, and the ids that it has to have; a user's may have any group
Wanted = tuple[str, int, int]


def verify_owners(node: str, people: Mapping[str, Sequence[Entry]], spaces: Sequence[Entry]) -> list[Check]:
    """One check, about the people whose accounts are open and their groups; none where the node has no spaces."""
    today = identities.today()
    active = [each for each in people["people"] if not identities.is_over(each, "expires", today)]
    if not spaces or not active:
        return []
    chosen = sample(node, active)
    faults = [fault for each in wanted(chosen, people["groups"], spaces) for fault in _faults(each)]
    return [summary(OWNERS, node, len(chosen), faults)]


def sample(node: str, people: Sequence[Entry]) -> list[Entry]:
    """All, or `MOST` of them, others on each node."""
    if len(people) <= MOST:
        return list(people)
    return sorted(people, key=lambda person: zlib.crc32(f"{node} {person['name']}".encode()))[:MOST]


def wanted(people: Sequence[Entry], groups: Sequence[Entry], spaces: Sequence[Entry]) -> Iterator[Wanted]:
    """The directories of these people, and of their groups."""
    ids = {group["name"]: int(group["gid"]) for group in groups}
    for space in spaces:
        if space["name"] == "home":
            # environment-homes
            continue
        if space["by"] == "user":
            yield from ((os.path.join(space["path"], each["name"]), int(each["uid"]), -1) for each in people)
            continue
        names = dict.fromkeys(name for each in people for name in each["groups"] if name in ids)
        yield from ((os.path.join(space["path"], name), -1, ids[name]) for name in names)


def _faults(directory: Wanted) -> Iterator[str]:
    path, uid, gid = directory
    try:
        status = os.lstat(path)
    except OSError as error:
        yield f"{path}: {error.strerror}"
        return
    if not stat.S_ISDIR(status.st_mode):
        yield f"{path} is not a directory"
    elif uid >= 0 and status.st_uid != uid:
        yield f"{path} belongs to {status.st_uid}, not to {uid}"
    elif gid >= 0 and status.st_gid != gid:
        yield f"{path} has the group {status.st_gid}, not {gid}"
    elif status.st_mode & stat.S_IWOTH:
        yield f"{path} may be written by everybody"
    elif not status.st_mode & (stat.S_IRWXU if uid >= 0 else stat.S_IRWXG):
        yield f"{path} is closed to those whose it is (mode {stat.S_IMODE(status.st_mode):o})"

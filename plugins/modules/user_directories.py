#!/usr/bin/python
"""Directories of users and groups in the file systems that a node serves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: user_directories
short_description: Make a directory for each user or group
description:
  - Makes what is missing, a user's as USER:USER 0700, a group's as root:GROUP 2770. What is there stays as it is,
    owner and mode too, and nothing is ever removed.
  - Users own what is in these directories, so no link is followed. A space in which others than root may write is
    refused, since the user who makes a name there first would own what a new user's variable points to.
  - A name that another user has is left alone, and fails the call after all other directories are made.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  spaces:
    description: Where directories are made.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: The directory that they are in., type: str, required: true}
      by: {description: Whose they are., type: str, choices: [user, group], required: true}
      mounted: {description: Whether a file system must be mounted there., type: bool, default: false}
      counted: {description: Whether its use is counted every night; of no effect here., type: bool, default: false}
  people:
    description: Users with C(name) and C(uid), and C(gid) where it is another number.
    type: list
    elements: dict
    required: true
  groups: {description: Groups with C(name) and C(gid)., type: list, elements: dict, required: true}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Make directories of users
  deepopsctl.cluster.user_directories:
    spaces:
      - {path: /srv/scratch, by: user}
    people:
      - {name: alice, uid: 60010}
    groups: []
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
conflicts: {description: Directories that could not be made., type: list, elements: str, returned: always}
taken: {description: Names that another user has., type: list, elements: str, returned: always}
"""

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    identities as node_identities,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_NAMED = 5
TAKEN = "ask who made it; move it away, or chown it to its user (a group's to root:GROUP), then deploy again"
OPTIONS = {
    "spaces": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"required": True},
            "by": {"required": True, "choices": ["user", "group"]},
            "mounted": {"type": "bool", "default": False},
            "counted": {"type": "bool", "default": False},
        },
    },
    "people": {"type": "list", "elements": "dict", "required": True},
    "groups": {"type": "list", "elements": "dict", "required": True},
}


def wanted(space: Mapping[str, Any], params: Mapping[str, Any]) -> list[tuple[str, int, int, int]]:
    """(name, uid, gid, mode) of each directory of a space."""
    if space["by"] == "user":
        return [(each["name"], int(each["uid"]), int(each.get("gid", each["uid"])), 0o700) for each in params["people"]]
    return [(each["name"], 0, int(each["gid"]), 0o2770) for each in params["groups"]]


def open_space(path: str) -> int:
    """The space itself: root's, and no place where others could make or rename something."""
    link = node_files.users_link(path)
    if link:
        raise node_errors.HintedError(f"{link} is a user's link: nothing is made there", "remove it")
    handle = os.open(os.path.realpath(path), OPEN)
    status = os.fstat(handle)
    if status.st_uid == 0 and not status.st_mode & 0o022:
        return handle
    os.close(handle)
    raise node_errors.HintedError(
        f"others than root may write in {path} (user id {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}): "
        "the user who makes a directory first would own it",
        "chown root:root and chmod 755 it, on its file server if that squashes root",
    )


def owner_of(handle: int, name: str) -> tuple[int, ...] | None:
    """(uid, gid) of a directory, () where the name is missing, None where it is something else."""
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return ()
    return (status.st_uid, status.st_gid) if stat.S_ISDIR(status.st_mode) else None


def is_unfinished(handle: int, name: str) -> bool:
    """Whether a directory is what a run that was cut off leaves: root's and empty."""
    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode) or (status.st_uid, status.st_gid) != (0, 0):
        return False
    try:
        inner = os.open(name, OPEN, dir_fd=handle)
    except PermissionError:
        # a server that squashes root
        return False
    try:
        return not os.listdir(inner)
    finally:
        os.close(inner)


def make(handle: int, name: str, uid: int, gid: int, mode: int) -> None:
    """The directory, root's own until it has its mode. Raises PermissionError where root is squashed."""
    missing = owner_of(handle, name) == ()
    if missing:
        os.mkdir(name, 0o700, dir_fd=handle)
    inner = os.open(name, OPEN, dir_fd=handle)
    try:
        if os.fstat(inner).st_uid != 0:
            if missing:
                # a server that squashes root, with a space where everybody may write
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=handle)
                raise PermissionError
            raise node_errors.HintedError(f"{name} was replaced while it was made", "deploy again")
        # the mode is last: a change of owner takes the setgid bit away
        os.fchown(inner, uid, gid)
        os.fchmod(inner, mode)
    finally:
        os.close(inner)


def ensure(
    noted: node_changes.Noted, path: str, directories: Sequence[tuple[str, int, int, int]]
) -> tuple[dict[str, list[int]], list[str], list[str]]:
    """Make the missing ones of a space; returns (those that are as they should be, conflicts, names of others)."""
    made: dict[str, list[int]] = {}
    conflicts, taken, refused = [], [], []
    handle = open_space(path)
    try:
        for name, uid, gid, mode in directories:
            full = os.path.join(path, name)
            owner = owner_of(handle, name)
            if owner == () or (owner == (0, 0) and is_unfinished(handle, name)):
                try:
                    if not noted.dry:
                        make(handle, name, uid, gid, mode)
                except PermissionError:
                    refused.append(name)
                    continue
                announce(noted, path, [(name, uid, gid, mode)])
            elif owner != (uid, gid):
                taken.append(f"{full} belongs to {owner[0]}:{owner[1]}" if owner else f"{full} is not a directory")
                continue
            made[full] = [uid, gid]
    finally:
        os.close(handle)
    if refused:
        names = node_identities.first_few(refused)
        conflicts.append(f"root may not make directories in {path} (root is squashed?): make on its server: {names}")
    return made, conflicts, taken


def announce(noted: node_changes.Noted, path: str, directories: Sequence[tuple[str, int, int, int]]) -> None:
    """All of them, where there is nothing to compare with yet."""
    for name, uid, gid, mode in directories:
        noted.did("directory", os.path.join(path, name), "set", detail=f"{uid}:{gid} {mode:04o}")


def converge(
    module: AnsibleModule, noted: node_changes.Noted
) -> tuple[dict[str, list[int]], list[str], list[str], dict[str, bool]]:
    """All spaces; returns (what there is now, conflicts, what fails the call, hints for that)."""
    made: dict[str, list[int]] = {}
    hints: dict[str, bool] = {}
    conflicts, taken = [], []
    for space in module.params["spaces"]:
        directories = wanted(space, module.params)
        if (space["mounted"] and not mount_table.is_mounted(space["path"])) or not os.path.isdir(space["path"]):
            if noted.dry:
                # storage is mounted before these are made
                announce(noted, space["path"], directories)
            else:
                conflicts.append(f"{space['path']} is not mounted: no directory was made there")
            continue
        try:
            of_space, not_made, others = ensure(noted, space["path"], directories)
        except node_errors.HintedError as error:
            taken.append(str(error))
            hints[error.hint] = True
            continue
        made.update(of_space)
        conflicts += not_made
        taken += others
        hints.update({TAKEN: True} if others else {})
    return made, conflicts, taken, hints


def main() -> None:
    module = AnsibleModule(argument_spec={**node_record.STEP, **OPTIONS}, supports_check_mode=True)
    noted = node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json, "directories of users: %s"):
        made, conflicts, taken, hints = converge(module, noted)
    for sentence in conflicts[:MOST_NAMED]:
        module.warn(sentence)
    if len(conflicts) > MOST_NAMED:
        module.warn(f"{len(conflicts) - MOST_NAMED} more directories of users have conflicts")
    if not module.check_mode:
        # what is not settled is compared again by the next deploy
        digest = "" if conflicts or taken else module.params["digest"]
        items = {**node_record.items(), "made": made}
        node_record.save(module.params["component"], module.params["step"], digest, items)
    result = noted.result(conflicts=conflicts, taken=taken)
    if taken:
        message = f"directories of users: {node_identities.first_few(taken)}"
        module.fail_json(msg=message, hint="; ".join(hints), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()

"""A system account with the id that the cluster's other nodes have, before a package chooses one."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command, step as node_step

ANSWER_S = 60
HOME = ["--home-dir", "/nonexistent", "--no-create-home", "--shell", "/usr/sbin/nologin"]


def ensure_account(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """Create user and group where they are missing; another id is an error, because files and daemons have it."""
    name, uid = wanted["name"], wanted["uid"]
    gid = wanted["gid"] or uid
    current = _uid(name)
    if current == uid:
        return
    if current is not None:
        hint = f"stop its daemons on the node, then usermod --uid {uid} {name}, and chown its files"
        step.fail(f"the user {name} has the id {current} here, {uid} in the cluster", hint)
    group = _gid(name)
    if group not in (None, gid):
        hint = f"groupmod --gid {gid} {name} on the node, and chgrp its files"
        step.fail(f"the group {name} has the id {group} here, {gid} in the cluster", hint)
    if not step.dry:
        if group is None:
            _run(step, ["groupadd", "--gid", str(gid), name])
        _run(step, ["useradd", "--uid", str(uid), "--gid", name, *HOME, name])
    step.did(f"created the user {name} with id {uid}", "account", name, "add", detail=f"user id {uid}")


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _run(step: node_step.Step, argv: Sequence[str]) -> None:
    result = node_command.run_merged(argv, ANSWER_S)
    if not result.ok:
        step.fail(f"{argv[0]}: {result.message}", "is the id taken? See /etc/passwd")

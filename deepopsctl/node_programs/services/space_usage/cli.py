"""`deepops-space-usage`: walk the directories of groups and users, and write what is there, for them to read.

Users own all that is walked: no link and no mount is followed, and only root writes where results are.
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import json
import os
import pwd
import sys
import time
from typing import Any

from ..._shared import settings
from ..._shared.settings import SettingsError
from ..scratch_purge.ageing import Ages
from ..scratch_purge.excluding import Excluded
from ..scratch_purge.records import DIRECTORY
from ..scratch_purge.tree import OpenPath, TreeError, raise_open_file_limit
from ..scratch_purge.walk import Walk

CONFIG = "/etc/deepopsctl/space-usage.json"
RESULTS = ".stats"
OK, PROBLEMS, INVALID = 0, 1, 3
# who has most; a group has no more members, but its files may belong to anybody
MOST_USERS = 1000
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Usage = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="deepops-space-usage", description=__doc__.partition("\n")[0].replace("`", "")
    )
    parser.add_argument("--config", default=CONFIG, help="directories of groups (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        spaces = settings.load(options.config)["spaces"]
    except (SettingsError, KeyError) as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    deepest, status = raise_open_file_limit(), OK
    for space in spaces:
        readers = {name: int(gid) for name, gid in space.get("groups", {}).items()}
        readers.update((name, own_group(name)) for name in space.get("users", ()))
        for name, gid in sorted(readers.items()):
            try:
                usage = scan(os.path.join(space["path"], name), deepest)
                write(space["path"], name, gid, usage, "group" if name in space.get("groups", {}) else "user")
            except (TreeError, OSError) as error:
                sys.stderr.write(f"error: {space['path']}/{name}: {error}\n")
                status = PROBLEMS
    return status


def own_group(user: str) -> int:
    """The id of the group that only this user is in; root's where there is none, so that no other user reads it."""
    try:
        gid = pwd.getpwnam(user).pw_gid
        group = grp.getgrgid(gid)
    except KeyError:
        return 0
    return gid if group.gr_name == user and not set(group.gr_mem) - {user} else 0


def scan(root: str, deepest: int) -> Usage:
    """Files and bytes of each user below a directory; a file with several names counts once."""
    users: dict[int, list[float]] = {}
    with OpenPath(root, deepest) as path:
        walk = Walk(path, Excluded(()), Ages(ignore_reads=True), int(time.time()))
        for record in walk:
            if record.file_type != DIRECTORY:
                mine = users.setdefault(record.uid, [0, 0])
                # one that is removed meanwhile has no name
                names = max(record.names, 1)
                mine[0] += 1 / names
                mine[1] += record.size / names
    most = sorted(users.items(), key=lambda item: item[1][1], reverse=True)[:MOST_USERS]
    listed = [{"uid": uid, "files": round(files), "bytes": round(size)} for uid, (files, size) in most]
    return {"schema": 1, "finished": int(time.time()), "users": listed, "problems": walk.seen.counts["problems"]}


def write(space: str, name: str, gid: int, usage: Usage, whose: str = "group") -> None:
    """Replace the result of a group, which its members may read, or of a user."""
    handle = os.open(space, _OPEN)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(RESULTS, 0o755, dir_fd=handle)
        results = os.open(RESULTS, _OPEN, dir_fd=handle)
    finally:
        os.close(handle)
    try:
        status = os.fstat(results)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise TreeError(f"{RESULTS} there is not root's: remove it")
        # whatever the umask
        os.fchmod(results, 0o755)
        _replace(results, name + ".json", gid, json.dumps({**usage, whose: name}) + "\n")
    finally:
        os.close(results)


def _replace(directory: int, name: str, gid: int, text: str) -> None:
    new = "." + name
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o600, dir_fd=directory), "w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchown(stream.fileno(), -1, gid)
        os.fchmod(stream.fileno(), 0o640)
    os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)

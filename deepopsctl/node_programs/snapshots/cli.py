"""`deepops-snapshots`: take a read-only btrfs snapshot of each file system, and delete those that are not kept.

They are in .snapshots of the file system, named by local time:
`cp /home/.snapshots/2026-11-25_1900/alice/thesis.tex ~`.
Files in them keep owner and mode, so users read what was theirs to read.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import subprocess
import sys
from datetime import datetime
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from .._shared import settings
from .._shared.settings import SettingsError

CONFIG = "/etc/deepopsctl/snapshots.json"
DIRECTORY = ".snapshots"
OK, PROBLEMS, INVALID = 0, 1, 3
TIME_S = 600
_FORMAT = "%Y-%m-%d_%H%M"
_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{4}")
# of every subvolume of btrfs
_ROOT_INODE = 256
# what two snapshots of one hour, day or week have in common
_PERIODS: Dict[str, Callable[[datetime], Tuple[int, ...]]] = {
    "hourly": lambda at: (at.year, at.month, at.day, at.hour),
    "daily": lambda at: (at.year, at.month, at.day),
    "weekly": lambda at: tuple(at.isocalendar())[:2],
}


class SnapshotError(Exception):
    """No snapshot can be taken; the message has the reason."""


def main(arguments: Optional[List[str]] = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-snapshots", description=__doc__.partition("\n")[0].replace("`", ""))
    parser.add_argument("--config", default=CONFIG, help="what is kept of which file systems (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        file_systems = settings.load(options.config)["file_systems"]
    except (SettingsError, KeyError) as error:
        sys.stderr.write("error: {}\n".format(error))
        return INVALID
    # users enter the directory
    os.umask(0o022)
    status = OK
    for each in file_systems:
        try:
            turn(each, datetime.now())
        except (SnapshotError, OSError) as error:
            sys.stderr.write("error: {}: {}\n".format(each["path"], error))
            status = PROBLEMS
    return status


def turn(file_system: Dict[str, Any], now: datetime) -> None:
    """One more snapshot, and those that are kept."""
    path = file_system["path"]
    directory = prepare(path)
    take(path, directory, now.strftime(_FORMAT))
    names = sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))
    stays = kept(names, file_system)
    for name in names:
        if name not in stays:
            delete(directory, name)
    facts = os.statvfs(path)
    if facts.f_bavail * 100 < facts.f_blocks * file_system["free_percent"] and len(stays) > 1:
        oldest = min(stays)
        delete(directory, oldest)
        raise SnapshotError(
            "less than {} % is free: the snapshot {} was deleted before its time".format(
                file_system["free_percent"], oldest
            )
        )


def kept(names: Iterable[str], wanted: Dict[str, Any]) -> Set[str]:
    """The newest snapshot of each of the last hours, days and weeks that are wanted, and the newest of all."""
    newest_first = sorted(names, reverse=True)
    stays = set(newest_first[:1])
    for period, key in _PERIODS.items():
        newest: Dict[Tuple[int, ...], str] = {}
        for name in newest_first:
            newest.setdefault(key(datetime.strptime(name, _FORMAT)), name)
        stays.update(list(newest.values())[: wanted[period]])
    return stays


def prepare(path: str) -> str:
    """The directory of the snapshots, which is root's: nobody else could put anything in their place."""
    if os.stat(path).st_ino != _ROOT_INODE:
        raise SnapshotError("is no subvolume of btrfs: `btrfs subvolume create` makes one")
    directory = os.path.join(path, DIRECTORY)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o755)
    for each in (path, directory):
        facts = os.lstat(each)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            raise SnapshotError("{} can be changed by others than root: nothing is done there".format(each))
    return directory


def take(path: str, directory: str, name: str) -> None:
    """A snapshot with this name; one of the same minute is enough."""
    target = os.path.join(directory, name)
    if not os.path.lexists(target):
        btrfs("snapshot", "-r", path, target)


def delete(directory: str, name: str) -> None:
    """Remove a snapshot."""
    btrfs("delete", os.path.join(directory, name))


def btrfs(*words: str) -> None:
    """A command of `btrfs subvolume`; it must succeed."""
    argv = ["btrfs", "subvolume", *words]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIME_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SnapshotError("{} takes longer than {} s".format(" ".join(argv), TIME_S)) from error
    if done.returncode:
        raise SnapshotError(done.stderr.decode(errors="replace").strip())

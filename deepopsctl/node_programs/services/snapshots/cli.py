"""`deepops-snapshots`: take a read-only snapshot of each file system, and delete those that are not kept.

It is a subvolume of btrfs or a dataset of ZFS. Snapshots are in .snapshots of the file system, named by local time:
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
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Callable

from ..._shared import settings
from ..._shared.settings import SettingsError

CONFIG = "/etc/deepopsctl/snapshots.json"
DIRECTORY = ".snapshots"
MOUNTS = "/proc/self/mounts"
OK, PROBLEMS, INVALID = 0, 1, 3
TIME_S = 600
_FORMAT = "%Y-%m-%d_%H%M"
_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{4}")
# of every subvolume of btrfs
_ROOT_INODE = 256
# what two snapshots of one hour, day or week have in common
_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "hourly": lambda at: (at.year, at.month, at.day, at.hour),
    "daily": lambda at: (at.year, at.month, at.day),
    "weekly": lambda at: tuple(at.isocalendar())[:2],
}


class SnapshotError(Exception):
    """No snapshot can be taken; the message has the reason."""


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-snapshots", description=__doc__.partition("\n")[0].replace("`", ""))
    parser.add_argument("--config", default=CONFIG, help="what is kept of which file systems (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        file_systems = settings.load(options.config)["file_systems"]
    except (SettingsError, KeyError) as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    # users enter the directory
    os.umask(0o022)
    status = OK
    for each in file_systems:
        try:
            turn(each, datetime.now())
        except (SnapshotError, OSError) as error:
            sys.stderr.write(f"error: {each['path']}: {error}\n")
            status = PROBLEMS
    return status


def turn(file_system: dict[str, Any], now: datetime) -> None:
    """One more snapshot, and those that are kept."""
    path = file_system["path"]
    dataset = dataset_at(path)
    taken = Zfs(path, dataset) if dataset else Btrfs(path)
    taken.prepare()
    name = now.strftime(_FORMAT)
    # one of the same minute is enough
    if name not in taken.names():
        taken.take(name)
    names = sorted(each for each in taken.names() if _is_managed(each))
    stays = kept(names, file_system)
    problems: list[str] = []
    for each in names:
        if each not in stays:
            _delete(taken, each, problems)
    facts = os.statvfs(path)
    if facts.f_bavail * 100 < facts.f_blocks * file_system["free_percent"]:
        gone = next((each for each in sorted(stays)[:-1] if _delete(taken, each, problems)), "")
        limit = f"less than {file_system['free_percent']} % is free"
        problems += [f"{limit}: the snapshot {gone} was deleted before its time"] if gone else []
    if problems:
        raise SnapshotError("; ".join(problems))


def _delete(taken: Btrfs | Zfs, name: str, problems: list[str]) -> bool:
    """Whether it went: one that is held (zfs hold) or has a clone keeps no others from being deleted."""
    try:
        taken.delete(name)
    except SnapshotError as error:
        problems.append(str(error))
        return False
    return True


def _is_managed(name: str) -> bool:
    try:
        return bool(_NAME.fullmatch(name) and datetime.strptime(name, _FORMAT))
    except ValueError:
        # no day that there is
        return False


def kept(names: Iterable[str], wanted: dict[str, Any]) -> set[str]:
    """The newest snapshot of each of the last hours, days and weeks that are wanted, and the newest of all."""
    newest_first = sorted(names, reverse=True)
    stays = set(newest_first[:1])
    for period, key in _PERIODS.items():
        newest: dict[tuple[int, ...], str] = {}
        for name in newest_first:
            newest.setdefault(key(datetime.strptime(name, _FORMAT)), name)
        stays.update(list(newest.values())[: wanted[period]])
    return stays


class Btrfs:
    """Snapshots of a subvolume; each is a subvolume in its .snapshots."""

    def __init__(self, path: str) -> None:
        self.path, self.directory = path, os.path.join(path, DIRECTORY)

    def prepare(self) -> None:
        """Make the directory of the snapshots, which is root's: no other user can put anything in their place."""
        if os.stat(self.path).st_ino != _ROOT_INODE:
            raise SnapshotError(
                "is neither a subvolume of btrfs nor a dataset of ZFS: `btrfs subvolume create` makes one"
            )
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.directory, 0o755)
        for each in (self.path, self.directory):
            check_owner(each)

    def names(self) -> list[str]:
        """The snapshots that are there."""
        return os.listdir(self.directory)

    def take(self, name: str) -> None:
        """One more snapshot."""
        require_output("btrfs", "subvolume", "snapshot", "-r", self.path, os.path.join(self.directory, name))

    def delete(self, name: str) -> None:
        """Remove a snapshot."""
        require_output("btrfs", "subvolume", "delete", os.path.join(self.directory, name))


class Zfs:
    """Snapshots of a dataset; .snapshots is a link to where ZFS shows them."""

    LINK = ".zfs/snapshot"

    def __init__(self, path: str, dataset: str) -> None:
        self.path, self.dataset = path, dataset

    def prepare(self) -> None:
        """Make the link, in a directory that is root's."""
        check_owner(self.path)
        link = os.path.join(self.path, DIRECTORY)
        with contextlib.suppress(FileExistsError):
            os.symlink(self.LINK, link)
        if not os.path.islink(link) or os.readlink(link) != self.LINK:
            raise SnapshotError(f"{link} is something else than a link to {self.LINK}")

    def names(self) -> list[str]:
        """The snapshots that are there."""
        shown = require_output("zfs", "list", "-H", "-t", "snapshot", "-d", "1", "-o", "name", self.dataset)
        return [line.partition("@")[2] for line in shown.splitlines()]

    def take(self, name: str) -> None:
        """One more snapshot."""
        require_output("zfs", "snapshot", f"{self.dataset}@{name}")

    def delete(self, name: str) -> None:
        """Remove a snapshot: never the dataset, whose name has no @."""
        require_output("zfs", "destroy", f"{self.dataset}@{name}")


def dataset_at(path: str, mounts: str = MOUNTS) -> str:
    """The dataset of ZFS that is mounted there; '' for none."""
    dataset = ""
    # the kernel escapes no other end of a line, and a user chooses where something is mounted
    with open(mounts, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in file:
            # of several mounts the last is on top; spaces are written as \\040
            source, place, file_system = line.split(" ")[:3]
            if place == path.rstrip("/"):
                dataset = source if file_system == "zfs" else ""
    return dataset


def check_owner(path: str) -> None:
    """Refuse a directory that others than root can change."""
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise SnapshotError(f"{path} can be changed by others than root: nothing is done there")


def require_output(*argv: str) -> str:
    """What a command prints; it must succeed."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise SnapshotError(f"{' '.join(argv)} takes longer than {TIME_S} s") from error
    if done.returncode:
        raise SnapshotError(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode(errors="replace")

"""What a user's jobs have staged on this node and later ones find again: one directory for each user, limited in space.

An entry is a directory named by where a file is, its size and time of change; its content, and a file for each job that
has used it. It appears complete, and leaves when room is needed and none of those jobs runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Callable

from . import job
from .job import StagingError

# written by the role user_environment
SETTINGS = "/etc/deepopsctl/dataset-cache.json"
_CONTENT, _SIZE, _JOB, _NEW = "content", "size", "job-", ".new-"


class Cache:
    """The cache of this user on this node."""

    def __init__(self, form: str, settings: str = "") -> None:
        """The form is `unpacked` or `copied`: of one file both may be there."""
        self._form = form
        try:
            with open(settings or SETTINGS, encoding="utf-8") as stream:
                values = json.load(stream)
        except FileNotFoundError:
            raise StagingError("nodes keep no datasets between jobs here: leave out --cache") from None
        self.directory = os.path.join(values["directory"], str(os.geteuid()))
        self.limit = int(values["bytes"])
        if not os.path.isdir(self.directory):
            raise StagingError(
                f"{self.directory} does not exist: `journalctl -t deepopsctl-prolog` on the node says why"
            )

    def find(self, source: str) -> str:
        """The entry of a file; '' where there is none."""
        path = self._entry(source)
        return path if os.path.isdir(path) else ""

    def _entry(self, source: str) -> str:
        if os.path.isdir(source):
            raise StagingError(f"{source} is a directory, and --cache is for files: `pack-dataset` makes one of it")
        facts, path = os.stat(source), os.path.realpath(source)
        text = f"{self._form}\0{path}\0{facts.st_size}\0{facts.st_mtime_ns}"
        return os.path.join(self.directory, hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32])

    def stage(self, source: str, target: str, variables: Mapping[str, str], write: Callable[[str], None]) -> None:
        """Have a file's content, which `write` puts into a directory, in the cache, and links to it in the target."""
        entry = self._entry(source)
        with self._locked(entry):
            if not os.path.isdir(entry) and not self._build(entry, os.stat(source).st_size, target, write):
                sys.stdout.write(
                    f"{source}: larger than what is free of the cache, it is in this job's directory only\n"
                )
                return
            # the job first: no other one removes it from here on
            with open(os.path.join(entry, _JOB + variables["SLURM_JOB_ID"]), "w", encoding="utf-8"):
                os.utime(entry)
        content = os.path.join(entry, _CONTENT)
        for name in os.listdir(content):
            _link(os.path.join(content, name), os.path.join(target, name))

    def _build(self, entry: str, size: int, target: str, write: Callable[[str], None]) -> bool:
        """Write an entry; False where there is no room, then its content is in the target."""
        new = os.path.join(self.directory, _NEW + os.path.basename(entry))
        # of a job that was cut off: the lock is ours
        _remove(new)
        content = os.path.join(new, _CONTENT)
        os.makedirs(content, mode=0o700)
        self._make_room(size)
        try:
            write(content)
            size = _size_of(content)
            if not self._make_room(size):
                for name in os.listdir(content):
                    shutil.move(os.path.join(content, name), os.path.join(target, name))
                return False
            with open(os.path.join(new, _SIZE), "w", encoding="utf-8") as stream:
                stream.write(str(size))
            os.rename(new, entry)
            return True
        finally:
            _remove(new)

    def _make_room(self, size: int) -> bool:
        """Remove what was not used for the longest time until there is room; whether there is."""
        sizes = {path: _recorded_size(path) for path in self._entries()}
        used = sum(sizes.values())
        for path in sorted(sizes, key=lambda path: os.stat(path).st_mtime):
            if used + size <= self.limit:
                break
            if not _is_used(path):
                _remove(path)
                used -= sizes[path]
        return used + size <= self.limit

    def _entries(self) -> list[str]:
        with os.scandir(self.directory) as listing:
            return [
                each.path for each in listing if not each.name.startswith(".") and each.is_dir(follow_symlinks=False)
            ]

    @contextlib.contextmanager
    def _locked(self, entry: str) -> Iterator[None]:
        """Two jobs that need the same file: the second finds what the first has written."""
        with open(os.path.join(self.directory, f".lock-{os.path.basename(entry)}"), "w", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _is_used(entry: str) -> bool:
    jobs = [name[len(_JOB) :] for name in os.listdir(entry) if name.startswith(_JOB)]
    return any(job.may_run(each) for each in jobs)


def _recorded_size(entry: str) -> int:
    try:
        with open(os.path.join(entry, _SIZE), encoding="utf-8") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return _size_of(entry)


def _size_of(directory: str) -> int:
    """The bytes on the disk."""
    blocks = 0
    for top, names, files in os.walk(directory):
        blocks += sum(os.lstat(os.path.join(top, name)).st_blocks for name in (*names, *files))
    return blocks * 512


def _link(path: str, link: str) -> None:
    if os.path.islink(link):
        os.unlink(link)
    try:
        os.symlink(path, link)
    except FileExistsError:
        raise StagingError(f"{link} exists, and would be replaced by what is in the cache: remove it") from None


def _remove(path: str) -> None:
    if os.path.isdir(path):
        # directories of an archive may be read-only
        for top, _, _ in os.walk(path):
            os.chmod(top, 0o700)
        shutil.rmtree(path)

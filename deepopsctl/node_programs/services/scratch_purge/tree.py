"""Open directories from the root of a purge down: names are never resolved again, links and mounts never followed.

What users own can be renamed, replaced by a link or mounted over between any two calls. So every step is an open of one
name in a directory that is already open, with O_NOFOLLOW, and the result is checked before it is used.
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Sequence

from .records import shared_parts

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# for the interpreter, the lists and the log
_OTHERS = 64


class TreeError(Exception):
    """The root can't be purged."""


class NotEnteredError(Exception):
    """A directory that is not entered; the message has the reason."""


def raise_open_file_limit() -> int:
    """How many levels there can be: a directory that is read takes two descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard if hard != resource.RLIM_INFINITY else 65536, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return (most - _OTHERS) // 2


def mount_id(handle: int) -> int:
    """The mount that an open directory is on: a bind mount of the same file system has another one."""
    with open(f"/proc/self/fdinfo/{handle}", "rb") as stream:
        for line in stream:
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    raise TreeError("the kernel does not report the mount of a directory")


def _open_directory(name: bytes, within: int | None) -> int:
    try:
        # reading must not change access times
        return os.open(name, _OPEN | os.O_NOATIME, dir_fd=within)
    except PermissionError:
        return os.open(name, _OPEN, dir_fd=within)


def same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two stat results are of the same file."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


class OpenDirectory:
    """An open directory and its status when it was opened."""

    def __init__(self, name: bytes, handle: int) -> None:
        self.name = name
        self.handle = handle
        self.status = os.fstat(handle)


class OpenPath:
    """The open directories from the root down to the current one."""

    def __init__(self, root: str, deepest: int) -> None:
        self._deepest = deepest
        self._directories: list[OpenDirectory] = [OpenDirectory(b"", _open_root(root))]
        self.device = self._directories[0].status.st_dev
        self.mount = mount_id(self._directories[0].handle)

    def __enter__(self) -> OpenPath:
        return self

    def __exit__(self, *_: object) -> None:
        for directory in self._directories:
            os.close(directory.handle)

    @property
    def here(self) -> OpenDirectory:
        """The current directory."""
        return self._directories[-1]

    @property
    def depth(self) -> int:
        """Levels below the root."""
        return len(self._directories) - 1

    @property
    def names(self) -> tuple[bytes, ...]:
        """From the root to here."""
        return tuple(directory.name for directory in self._directories[1:])

    def enter(self, name: bytes) -> OpenDirectory:
        """Go down one level; NotEnteredError if it must not be entered, OSError if it can't be opened."""
        if self.depth >= self._deepest:
            raise NotEnteredError(f"more than {self._deepest} levels deep")
        # before anything is opened: to open what an automounter waits at would mount it
        seen = self.status_of(name)
        if not stat.S_ISDIR(seen.st_mode):
            raise NotEnteredError("no longer a directory")
        if seen.st_dev != self.device:
            raise NotEnteredError("another file system")
        directory = OpenDirectory(name, _open_directory(name, self.here.handle))
        if not same(directory.status, seen) or mount_id(directory.handle) != self.mount:
            os.close(directory.handle)
            raise NotEnteredError("a mount point, or replaced meanwhile")
        self._directories.append(directory)
        return directory

    def leave(self) -> None:
        """Go up one level."""
        os.close(self._directories.pop().handle)

    def move_to(self, names: Sequence[bytes]) -> None:
        """Go to another directory of the tree by the shortest way; what is open already stays open."""
        shared = shared_parts(self.names, names)
        while self.depth > shared:
            self.leave()
        for name in names[shared:]:
            self.enter(name)

    def status_of(self, name: bytes) -> os.stat_result:
        """Status of a name in the current directory; links are not followed."""
        return os.stat(name, dir_fd=self.here.handle, follow_symlinks=False)

    def is_intact(self) -> bool:
        """Whether the current directory is still at its path below the root."""
        try:
            return all(
                same(os.stat(lower.name, dir_fd=upper.handle, follow_symlinks=False), lower.status)
                for upper, lower in zip(self._directories, self._directories[1:])
            )
        except OSError:
            return False


def _open_root(root: str) -> int:
    """From / down, one name at a time: a link anywhere in the path is refused."""
    handle = os.open("/", _OPEN)
    for name in filter(None, os.fsencode(root).split(b"/")):
        try:
            lower = _open_directory(name, handle)
        except OSError as error:
            raise TreeError(f"{root}: {os.fsdecode(name)}: {_root_words(error)}") from error
        finally:
            os.close(handle)
        handle = lower
    return handle


def _root_words(error: OSError) -> str:
    return "a link, or not a directory" if isinstance(error, NotADirectoryError) else str(error.strerror)

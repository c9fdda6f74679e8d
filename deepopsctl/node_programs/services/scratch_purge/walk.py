"""Walk a whole tree, file by file; changes nothing."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator

from .ageing import DAY, Ages, directory_last_used
from .excluding import Excluded
from .records import DIRECTORY, FILE, LINK, Record, shown
from .tree import NotEnteredError, OpenPath

# directory of the notices, which are not users' files
NOTICES = b".to_delete"
_KEPT_PROBLEMS = 100


class Seen:
    """Statistics of a walk: counts by type, and the first hundred problems."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def count(self, what: str) -> None:
        """One more."""
        self.counts[what] += 1

    def problem(self, path: bytes, why: str) -> None:
        """Record something that could not be checked."""
        self.count("problems")
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append(f"{shown(path) if path else 'the root'}: {why}")


class _Level:
    """A directory that is being read. Its path is not stored: thousands of nested paths would fill memory."""

    def __init__(self, handle: int) -> None:
        self.is_empty = True
        self._entries = os.scandir(handle)

    def next_name(self) -> bytes:
        """The next thing in it; b'' at the end."""
        entry = next(self._entries, None)
        if entry is None:
            return b""
        self.is_empty = False
        return os.fsencode(entry.name)

    def close(self) -> None:
        self._entries.close()


class Walk:
    """Yields a record for each file, link and empty directory; sockets, pipes and devices are only counted."""

    def __init__(self, open_path: OpenPath, excluded: Excluded, ages: Ages, now: int) -> None:
        self.seen = Seen()
        self._open_path = open_path
        self._excluded = excluded
        self._ages = ages
        self._now = now
        self._levels: list[_Level] = []

    def __iter__(self) -> Iterator[Record]:
        self._levels = [_Level(self._open_path.here.handle)]
        try:
            while self._levels:
                yield from self._step(self._levels[-1])
        finally:
            for level in self._levels:
                level.close()

    def _path(self, *below: bytes) -> bytes:
        return b"/".join((*self._open_path.names, *below))

    def _step(self, level: _Level) -> Iterator[Record]:
        try:
            name = level.next_name()
        except OSError as error:
            # entries that could not be read may exist: count the directory as not empty
            level.is_empty = False
            self.seen.problem(self._path(), str(error.strerror))
            name = b""
        if name:
            yield from self._meet(name)
        else:
            yield from self._close()

    def _close(self) -> Iterator[Record]:
        level = self._levels.pop()
        level.close()
        if not self._levels:
            return
        status, path = self._open_path.here.status, self._path() if level.is_empty else b""
        self._open_path.leave()
        # a user's own directory, on the first level, stays
        if level.is_empty and len(self._levels) > 1:
            yield Record(DIRECTORY, path, directory_last_used(status), status.st_ino, 0, status.st_uid, 1)

    def _meet(self, name: bytes) -> Iterator[Record]:
        if self._excluded.matches(self._open_path.names, name):
            self.seen.count("excluded")
            return
        try:
            status = self._open_path.status_of(name)
            if not self._open_path.depth and name == NOTICES and status.st_uid == os.geteuid():
                # the notices; a user's directory of that name is not skipped
                return
            if stat.S_ISDIR(status.st_mode):
                self._descend(name)
                return
        except FileNotFoundError:
            # deleted by its owner meanwhile
            return
        except NotEnteredError as error:
            self.seen.count("not entered")
            self.seen.problem(self._path(name), f"not entered: {error}")
            return
        except OSError as error:
            self.seen.problem(self._path(name), str(error.strerror))
            return
        file_type = FILE if stat.S_ISREG(status.st_mode) else LINK if stat.S_ISLNK(status.st_mode) else b""
        if not file_type or status.st_dev != self._open_path.device:
            self.seen.count("special")
            return
        self.seen.count("files")
        used = self._ages.last_used(status)
        # a file used during the walk, or on a server with a fast clock, is at most hours ahead
        if used > self._now + DAY:
            self.seen.count("dated in the future")
        size = status.st_blocks * 512
        yield Record(file_type, self._path(name), used, status.st_ino, size, status.st_uid, status.st_nlink)

    def _descend(self, name: bytes) -> None:
        directory = self._open_path.enter(name)
        self.seen.count("directories")
        try:
            self._levels.append(_Level(directory.handle))
        except OSError:
            self._open_path.leave()
            raise

"""The age of a file: by the newest of its access, modification and inode change times.

Times are compared as they are, never corrected. A time after now is newer than any age, so the file stays: it may have
been read a moment ago, during this very run, or on a server whose clock is ahead.
"""

from __future__ import annotations

import os

DAY = 86400


class Ages:
    """What counts as use: reads and changes, or only changes if the file system has no access times."""

    def __init__(self, *, ignore_reads: bool) -> None:
        self._ignore_reads = ignore_reads

    def last_used(self, status: os.stat_result) -> int:
        """When a file was last used, in seconds since 1970.

        The time of the inode's last change is the kernel's own: a file unpacked with its old date is as old as its
        copy here.
        """
        return max(self.last_opened(status), _seconds(status.st_ctime_ns))

    def last_opened(self, status: os.stat_result) -> int:
        """The same without the inode's own change, which the removal of another of its names is."""
        changed = _seconds(status.st_mtime_ns)
        return changed if self._ignore_reads else max(changed, _seconds(status.st_atime_ns))


def directory_last_used(status: os.stat_result) -> int:
    """The same for a directory; listing it (find, a backup) is not use."""
    return max(_seconds(status.st_mtime_ns), _seconds(status.st_ctime_ns))


def _seconds(nanoseconds: int) -> int:
    return nanoseconds // 1_000_000_000


def in_days(seconds: int) -> str:
    """`60 days`, `7 hours`."""
    number, unit = (seconds // DAY, "day") if seconds >= DAY else (seconds // 3600, "hour")
    return f"{number} {unit}{'' if number == 1 else 's'}"

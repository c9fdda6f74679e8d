"""How old a file is: by the newest of its last use, its last change and its last change of name, owner or mode."""

from __future__ import annotations

import os

# clocks of clients and server differ; more than this is a time that somebody set
_SLACK = 3600
DAY = 86400


def last_used(status: os.stat_result, now: int) -> int:
    """When a file was last used, in seconds since 1970.

    A time in the future counts for nothing: `touch -d 2099` would keep a file for ever. The time of the inode's last
    change is the kernel's own: a file unpacked with its old date is as old as its copy here.
    """
    return _newest((status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns), now)


def last_opened(status: os.stat_result, now: int) -> int:
    """The same without the inode's own change, which the removal of another of its names is."""
    return _newest((status.st_atime_ns, status.st_mtime_ns), now)


def folder_last_used(status: os.stat_result, now: int) -> int:
    """The same for a folder; whoever lists it (find, a backup) does not use it."""
    return _newest((status.st_mtime_ns, status.st_ctime_ns), now)


def _newest(nanoseconds: tuple[int, ...], now: int) -> int:
    seconds = [value // 1_000_000_000 for value in nanoseconds]
    return max((value for value in seconds if value <= now + _SLACK), default=now)


def in_days(seconds: int) -> str:
    """`60 days`, `7 hours`."""
    number, unit = (seconds // DAY, "day") if seconds >= DAY else (seconds // 3600, "hour")
    return "{} {}{}".format(number, unit, "" if number == 1 else "s")

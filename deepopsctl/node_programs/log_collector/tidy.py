"""Cleanup of collected journals. systemd-journal-remote of Debian 12 has no limits, that of 13 none by age."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import uuid
from typing import Callable, Iterable, List, Optional, Sequence, Tuple

from .bounds import DAY_S, Bounds, Journal, to_close, too_much, too_old

# journal-def.h of systemd: signature, seqnum_id, head_entry_seqnum, head_entry_realtime
_SIGNATURE = b"LPKSHHRH"
_HEADER = struct.Struct("<8s64x16s80xQ8xQ")
# when the last files were closed for their age
STAMP = ".closed"
# the time of the last run, by which journals age
PRESENT = ".present"
# By how much they age from one run to the next, at most; runs are five minutes apart. A clock that jumps ahead by years
# makes nothing old; after weeks without a run, removing everything that is due takes a third of that time.
PACE_S = 900.0
STORE = "deepops-logs-store.service"
Systemctl = Callable[[str, str], None]


def tidy(directory: str, bounds: Bounds, now: float, systemctl: Systemctl) -> List[str]:
    """Remove journals beyond the limits; returns the actions, one sentence each."""
    present = _present(directory, now)
    done = _warn(now, present)
    done += _remove(too_old(_journals(directory), bounds, present), "is older than the limit")
    closing = to_close(_journals(directory), bounds, present) if _is_due(directory, now) else []
    room = min(bounds.most_bytes, _room(directory))
    gone, ended = too_much(_journals(directory), room)
    done += _remove(gone, "made room")
    if closing or ended:
        done += _close([*closing, *(each for each in ended if each not in closing)], systemctl)
        done += _remove(too_much(_journals(directory), room)[0], "made room")
    if closing:
        _stamp(os.path.join(directory, STAMP), now)
    return done


def _present(directory: str, now: float) -> float:
    """The time by which journals age: now, but at most PACE_S after the last run."""
    path = os.path.join(directory, PRESENT)
    try:
        latest = os.stat(path).st_mtime + PACE_S
    except FileNotFoundError:
        latest = max((each.last + DAY_S for each in _journals(directory)), default=now)
    present = min(now, latest)
    _stamp(path, present)
    return present


def _warn(now: float, present: float) -> List[str]:
    # once an hour
    if now - present < 2 * DAY_S or now % 3600 >= PACE_S / 3:
        return []
    days = (now - present) / DAY_S
    return [
        "the clock is {:.0f} days ahead of the last runs: journals age slowly until that is made up for".format(days)
    ]


def systemctl(verb: str, unit: str) -> None:
    """One command of systemd's; raises where it fails."""
    subprocess.run(["systemctl", verb, unit], check=True, stdin=subprocess.DEVNULL)


def _journals(directory: str) -> List[Journal]:
    journals = []
    for entry in os.scandir(directory):
        if entry.name.startswith("remote-") and entry.name.endswith((".journal", ".journal~")):
            with contextlib.suppress(FileNotFoundError):
                journals.append(_journal(entry.path, entry.stat()))
    return journals


def _journal(path: str, status: os.stat_result) -> Journal:
    name = os.path.basename(path)
    header = _header(path)
    return Journal(
        path=path,
        node=name.partition("@")[0].rpartition(".journal")[0] or name.partition("@")[0],
        size=status.st_blocks * 512,
        first=header[2] / 1e6 if header else status.st_mtime,
        last=status.st_mtime,
        closed="@" in name,
    )


def _header(path: str) -> Optional[Tuple[str, int, int]]:
    """What a closed file is named after: the sequence, its first number, the first entry's time in microseconds."""
    with open(path, "rb") as stream:
        start = stream.read(_HEADER.size)
    if len(start) < _HEADER.size:
        return None
    signature, sequence, number, time_us = _HEADER.unpack(start)
    return (uuid.UUID(bytes=sequence).hex, number, time_us) if signature == _SIGNATURE and time_us else None


def _close(journals: Iterable[Journal], systemctl: Systemctl) -> List[str]:
    """Under the name that systemd itself gives them. Nodes that are just sending send it again to the new file."""
    systemctl("stop", STORE)
    try:
        return [_rename(each) for each in journals]
    finally:
        systemctl("start", STORE)


def _rename(journal: Journal) -> str:
    header = _header(journal.path)
    stem = journal.path[: -len(".journal")]
    if header:
        path = "{}@{}-{:016x}-{:016x}.journal".format(stem, *header)
    else:
        # as systemd names what it can't read
        path = "{}@{:016x}-{}.journal~".format(stem, int(journal.last * 1e6), uuid.uuid4().hex[:16])
    os.rename(journal.path, path)
    return "closed {}".format(path)


def _remove(journals: Sequence[Journal], why: str) -> List[str]:
    for each in journals:
        with contextlib.suppress(FileNotFoundError):
            os.remove(each.path)
    return ["removed {}: {}".format(each.path, why) for each in journals]


def _room(directory: str) -> int:
    """What journals may take so that a tenth of the disk stays free."""
    disk = os.statvfs(directory)
    short = disk.f_blocks * disk.f_frsize // 10 - disk.f_bavail * disk.f_frsize
    return max(0, sum(each.size for each in _journals(directory)) - short)


def _is_due(directory: str, now: float) -> bool:
    # a node whose clock is wrong would have its file closed each time
    try:
        # a stamp from the future is of a clock that was wrong
        return abs(now - os.stat(os.path.join(directory, STAMP)).st_mtime) > DAY_S
    except FileNotFoundError:
        return True


def _stamp(path: str, when: float) -> None:
    with open(path, "w", encoding="ascii"):
        os.utime(path, (when, when))

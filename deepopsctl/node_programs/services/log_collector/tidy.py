"""Cleanup of collected journals by age and size.

systemd-journal-remote of Debian 12 has no limits, that of 13 none by age, and none has a limit by node.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Callable

DAY_S = 86400.0
# when the open files were closed last
CLOSED = ".closed"
# the time of the last run, by which journals age
PRESENT = ".present"
# By how much they age from one run to the next, at most; runs are five minutes apart. A clock that jumps ahead by years
# makes nothing old; after weeks without a run, removing everything that is due takes a third of that time.
PACE_S = 900.0
STORE = "deepops-logs-store.service"
# runs a command that has to succeed
Run = Callable[[Sequence[str]], object]


@dataclass(frozen=True)
class Journal:
    """One file. `last`: when its last entry was received, unix seconds."""

    path: str
    # of which node: what comes before `@` and `.journal`
    node: str
    size: int
    last: float
    # nothing is written to it any more
    closed: bool


@dataclass(frozen=True)
class Bounds:
    """Limits of the collection: age and size."""

    keep_s: float
    most_bytes: int

    @property
    def closed_after_s(self) -> float:
        """Entries are removed with their file, which is closed after a quarter of the time: none stays much longer."""
        return max(DAY_S, self.keep_s / 4)


def tidy(directory: str, bounds: Bounds, now: float, run: Run) -> list[str]:
    """Remove journals beyond the limits; returns the actions, one sentence each."""
    present = _present(directory, now)
    done = _warn(now, present)
    old = [each for each in _journals(directory) if each.closed and each.last < present - bounds.keep_s]
    done += _remove(old, "is older than the limit")
    gone, closing = too_much(_journals(directory), min(bounds.most_bytes, _room(directory)))
    done += _remove(gone, "made room")
    # a stamp from the future is of a clock that was wrong
    due = abs(present - _closed_at(directory, present)) > bounds.closed_after_s
    if due:
        closing = [each for each in _journals(directory) if not each.closed]
    if closing:
        done += _close(closing, run)
        done += _remove(too_much(_journals(directory), min(bounds.most_bytes, _room(directory)))[0], "made room")
    if due:
        _stamp(os.path.join(directory, CLOSED), present)
    return done


def too_much(journals: Sequence[Journal], most_bytes: int) -> tuple[list[Journal], list[Journal]]:
    """Files to remove, and files to close first, to stay below a size.

    The oldest file of the node with most data is removed first: a node that floods the log costs no other node's logs.
    """
    total = sum(each.size for each in journals)
    left: dict[str, list[Journal]] = {}
    for each in sorted(journals, key=lambda journal: (not journal.closed, journal.last), reverse=True):
        left.setdefault(each.node, []).append(each)
    gone: list[Journal] = []
    closing: list[Journal] = []
    while total > most_bytes and any(left.values()):
        files = left[max((node for node in left if left[node]), key=lambda node: _claim(left[node]))]
        victim = files.pop()
        (gone if victim.closed else closing).append(victim)
        total -= victim.size
    return gone, closing


def _claim(files: Sequence[Journal]) -> tuple[int, bool]:
    """Size of a node's files; of two equal nodes, the one with a closed file comes first."""
    return sum(each.size for each in files), files[-1].closed


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


def _warn(now: float, present: float) -> list[str]:
    # once an hour
    if now - present < 2 * DAY_S or now % 3600 >= PACE_S / 3:
        return []
    days = f"{(now - present) / DAY_S:.0f} days"
    return [f"the clock is {days} ahead of the last runs: journals age slowly until that is made up for"]


def _journals(directory: str) -> list[Journal]:
    journals = []
    for entry in os.scandir(directory):
        name = entry.name
        if name.startswith("remote-") and name.endswith((".journal", ".journal~")):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                node, closed, _ = name.rpartition(".journal")[0].partition("@")
                journals.append(Journal(entry.path, node, status.st_blocks * 512, status.st_mtime, bool(closed)))
    return journals


def _close(journals: Iterable[Journal], run: Run) -> list[str]:
    """Nodes that are just sending send it again to the new file."""
    run(["systemctl", "stop", STORE])
    try:
        return [_rename(each) for each in journals]
    finally:
        run(["systemctl", "start", STORE])


def _rename(journal: Journal) -> str:
    stem, _, ending = journal.path.rpartition(".")
    path = f"{stem}@{int(journal.last * 1e6):016x}.{ending}"
    os.rename(journal.path, path)
    return f"closed {path}"


def _remove(journals: Sequence[Journal], why: str) -> list[str]:
    for each in journals:
        with contextlib.suppress(FileNotFoundError):
            os.remove(each.path)
    return [f"removed {each.path}: {why}" for each in journals]


def _room(directory: str) -> int:
    """What journals may take so that a tenth of the disk stays free."""
    disk = os.statvfs(directory)
    short = disk.f_blocks * disk.f_frsize // 10 - disk.f_bavail * disk.f_frsize
    return max(0, sum(each.size for each in _journals(directory)) - short)


def _closed_at(directory: str, present: float) -> float:
    """When the open files were closed last for their age; the first run counts as the first time."""
    path = os.path.join(directory, CLOSED)
    if not os.path.exists(path):
        _stamp(path, present)
    return os.stat(path).st_mtime


def _stamp(path: str, when: float) -> None:
    with open(path, "w", encoding="ascii"):
        os.utime(path, (when, when))

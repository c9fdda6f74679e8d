"""Since when each file stands on its owner's list: none is deleted before it stood there for the whole notice.

A folder that is moved into the tree brings files that are old already, and a clock can be wrong. On disk (SQLite), as
there may be millions.
"""

from __future__ import annotations

import sqlite3
from typing import Optional

from .ageing import DAY

# a purge that did not run for longer warned nobody meanwhile
_GAP = 3 * DAY
_SLACK = 3600


class Warned:
    """{inode: when it was first listed}; a file that was used or is gone is forgotten with the next run."""

    def __init__(self, path: str, now: int) -> None:
        self._now = now
        self._database = sqlite3.connect(path, isolation_level=None)
        self._do("PRAGMA journal_mode=WAL")
        # what a power cut loses is told once more
        self._do("PRAGMA synchronous=NORMAL")
        self._do("BEGIN IMMEDIATE")
        self._do(
            "CREATE TABLE IF NOT EXISTS warned (inode INTEGER PRIMARY KEY, first INTEGER, seen INTEGER, uid INTEGER)"
        )
        if not self._one("SELECT count(*) FROM pragma_table_info('warned') WHERE name = 'uid'"):
            self._do("ALTER TABLE warned ADD COLUMN uid INTEGER")
        self._do("CREATE TABLE IF NOT EXISTS runs (last INTEGER)")
        last = self._one("SELECT last FROM runs")
        self.restarted = last is None or not -_SLACK <= now - last <= _GAP
        # the clock was set, or is wrong; or the machine was off
        self.jumped = last is not None and self.restarted
        if self.restarted:
            self._do("DELETE FROM warned")

    def _do(self, statement: str, *values: int) -> None:
        self._database.execute(statement, values)

    def _one(self, statement: str, *values: int) -> Optional[int]:
        row = self._database.execute(statement, values).fetchone()
        return None if row is None else int(row[0])

    def note(self, inode: int, uid: int) -> int:
        """It stands on the list of this run; returns since when it does."""
        self._do(
            "INSERT INTO warned VALUES (?, ?, ?, ?)"
            " ON CONFLICT (inode) DO UPDATE SET seen = excluded.seen, uid = excluded.uid",
            _signed(inode),
            self._now,
            self._now,
            uid,
        )
        return self._one("SELECT first FROM warned WHERE inode = ?", _signed(inode)) or self._now

    def forget_new(self, uid: int) -> None:
        """A user's list could not be written: what would be new on it was not listed."""
        self._do("DELETE FROM warned WHERE uid = ? AND first = ?", uid, self._now)

    def commit(self) -> None:
        """The run got to its end: what it did not list was used or is gone."""
        self._do("DELETE FROM warned WHERE seen < ?", self._now)
        self._do("DELETE FROM runs")
        self._do("INSERT INTO runs VALUES (?)", self._now)
        self._do("COMMIT")

    def close(self) -> None:
        """Without keep() nothing is remembered."""
        self._database.close()


def _signed(inode: int) -> int:
    # SQLite's integers have a sign
    return inode - (1 << 64) if inode >= 1 << 63 else inode

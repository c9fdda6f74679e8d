"""Since when each file has been on its owner's list: none is deleted before the notice period has passed.

Files moved into the tree may be old already, and a clock can be wrong. On disk (SQLite), as
there may be millions.
"""

from __future__ import annotations

import sqlite3

from .ageing import DAY

# after a longer gap between runs, all notices start again
_GAP = 3 * DAY
_SLACK = 3600


class WarnedError(Exception):
    """The database can't be read or written; the message names it."""


class Warned:
    """{inode: when it was first listed}; a file that was used or deleted is removed by the next run."""

    def __init__(self, path: str, now: int) -> None:
        self._now, self._path = now, path
        self._database = sqlite3.connect(path, isolation_level=None)
        self._do("PRAGMA journal_mode=WAL")
        # what a power cut loses is announced again
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
        # the clock was set, or is wrong, or the node was off
        self.jumped = last is not None and self.restarted
        if self.restarted:
            self._do("DELETE FROM warned")

    def _do(self, statement: str, *values: int) -> list[tuple[int]]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            hint = "is its disk full? If it is damaged, remove it: all notices start again"
            raise WarnedError(f"{self._path}: {error}: {hint}") from error

    def _one(self, statement: str, *values: int) -> int | None:
        rows = self._do(statement, *values)
        return int(rows[0][0]) if rows else None

    def note(self, inode: int, uid: int) -> int:
        """Record a file on the list of this run; returns since when it has been listed."""
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
        """Remove a user's new files, as the list could not be written."""
        self._do("DELETE FROM warned WHERE uid = ? AND first = ?", uid, self._now)

    def commit(self) -> None:
        """Commit a complete run: files that it did not list were used or deleted."""
        self._do("DELETE FROM warned WHERE seen < ?", self._now)
        self._do("DELETE FROM runs")
        self._do("INSERT INTO runs VALUES (?)", self._now)
        self._do("COMMIT")

    def close(self) -> None:
        """Without commit() nothing is stored."""
        self._database.close()


def _signed(inode: int) -> int:
    # SQLite's integers have a sign
    return inode - (1 << 64) if inode >= 1 << 63 else inode

"""One run of a purge: scan, notify users, delete what was announced long enough, report."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Callable

from ..._shared import command, mount_table
from . import records
from .ageing import Ages, in_days
from .deleting import delete
from .excluding import Excluded
from .mounts import notes_reads, what_it_holds
from .notices import Notices, NoticesError, UserNotice, can_be_mailed, send, text, user_name
from .records import Record
from .settings import Settings
from .tree import OpenPath, TreeError, raise_open_file_limit
from .walk import Seen, Walk
from .warned import Warned

_KEPT_LOGS = 400
# of each user's lines in a day's log
_LARGEST_LOG = 64 << 20


class BusyError(Exception):
    """Another run of the same purge is under way."""


@dataclass
class Summary:
    """Result of one run."""

    name: str
    root: str
    mode: str
    applied: bool
    looked_at: dict[str, int] = field(default_factory=dict)
    due: int = 0
    due_bytes: int = 0
    warned: int = 0
    users_warned: int = 0
    mails: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything could be checked and deleted."""
        return not self.problems


class Selection:
    """Which files are due, and which are announced to their owners: the same rule for listing and deleting."""

    def __init__(self, settings: Settings, now: int, warned: Warned | None) -> None:
        self._settings = settings
        self._now = now
        self._warned = warned

    def is_candidate(self, record: Record) -> bool:
        """Whether it is old enough to be announced or deleted."""
        if record.file_type == records.DIRECTORY and not self._settings.empty_directories:
            return False
        return record.used <= self._now - (self._settings.age - (self._settings.warn if self._warned else 0))

    def deletion_time(self, record: Record) -> int:
        """When a candidate is deleted: at its age, and not before the notice period has passed."""
        by_age = record.used + self._settings.age
        if self._warned is None:
            return by_age
        return max(by_age, self._warned.note(record.inode, record.uid) + self._settings.warn)


@contextlib.contextmanager
def exclusive_lock(settings: Settings) -> Iterator[None]:
    """One run at a time."""
    os.makedirs(settings.state, mode=0o700, exist_ok=True)
    handle = os.open(os.path.join(settings.state, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise BusyError(f"another run of {settings.name} is under way") from error
    try:
        yield
    finally:
        os.close(handle)


def list_due(settings: Settings, now: int, show: Callable[[Record], None]) -> Summary:
    """Show what a purge that deletes would delete now; changes nothing."""
    with _Run(settings, now, applied=False) as run:
        for record in run.due():
            show(record)
        return run.summary()


def apply(settings: Settings, now: int) -> Summary:
    """Notify users and delete as configured."""
    with _Run(settings, now, applied=True) as run:
        run.list_and_notify()
        if settings.deletes:
            run.delete()
        return run.summary()


class _Run:
    def __init__(self, settings: Settings, now: int, *, applied: bool) -> None:
        self._settings = settings
        self._now = now
        self._ages = Ages(ignore_reads=settings.ignore_reads)
        self._stack = contextlib.ExitStack()
        self._summary = Summary(settings.name, settings.root, settings.mode, applied)
        self._seen: Seen | None = None

    def __enter__(self) -> _Run:
        with self._stack as stack:
            stack.enter_context(exclusive_lock(self._settings))
            self._open_path = stack.enter_context(OpenPath(self._settings.root, raise_open_file_limit()))
            self._check_mount()
            self._memory = (
                Warned(os.path.join(self._settings.state, "warned"), self._now) if self._settings.deletes else None
            )
            if self._memory:
                stack.callback(self._memory.close)
            self._warned = self._memory if self._settings.warns else None
            self._stack = stack.pop_all()
        self._select = Selection(self._settings, self._now, self._warned)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _check_mount(self) -> None:
        settings = self._settings
        mounts = mount_table.read()
        mount = next((each for each in mounts if each.number == self._open_path.mount), None)
        if mount is None:
            raise TreeError(f"{settings.root}: what is mounted there can't be seen")
        if settings.mounted and (mount.path != settings.root or mount.type == mount_table.AUTOFS):
            raise TreeError(f"{settings.root} is not mounted")
        held = what_it_holds(settings.root, mount, mounts, (each.pw_dir for each in pwd.getpwall()))
        if held:
            raise TreeError(f"{settings.root} holds {held}: it is not scratch and is never purged")
        if not notes_reads(mount) and not settings.ignore_reads:
            noatime = ", noatime" if "noatime" in mount.options else ""
            raise TreeError(
                f"{settings.root} ({mount.type}{noatime}) does not note when a file is read: files in use would be"
                " deleted. Mount it with relatime, or count age from the last change alone: ignore_reads: true in its"
                " purge"
            )

    def _walk(self) -> Iterator[tuple[Record, int]]:
        walk = Walk(self._open_path, Excluded(self._settings.exclude), self._ages, self._now)
        self._seen = walk.seen
        for record in walk:
            if self._select.is_candidate(record):
                yield record, self._select.deletion_time(record)

    def _note_due(self, record: Record) -> None:
        self._summary.due += 1
        self._summary.due_bytes += record.frees

    def due(self) -> Iterator[Record]:
        """What would be deleted now."""
        for record, deletion_time in self._walk():
            if deletion_time <= self._now:
                self._note_due(record)
                yield record

    def list_and_notify(self) -> None:
        """Write the list of what is due, and notify users of what will be."""
        notices = self._notices() if self._warned else None
        with records.create(self._due_path) as stream:
            due = records.Writer(stream)
            for record, deletion_time in self._walk():
                if deletion_time <= self._now:
                    self._note_due(record)
                    due.write(record)
                elif notices and record.file_type != records.DIRECTORY:
                    self._summary.warned += 1
                    notices.add(record, deletion_time, _day(deletion_time))
        if notices:
            self._notify_users(notices)
        if self._memory:
            self._memory.commit()

    @property
    def _due_path(self) -> str:
        return os.path.join(self._settings.state, "due")

    def _notices(self) -> Notices:
        try:
            notices = Notices(self._open_path, self._settings, self._now)
        except (NoticesError, OSError) as error:
            # without notices nothing may be deleted
            raise TreeError(f"no lists for users: {error}") from error
        self._stack.callback(notices.close)
        return notices

    def _notify_users(self, notices: Notices) -> None:
        users = notices.finish()
        for uid, user in users.items():
            if user.problem and self._warned:
                self._warned.forget_new(uid)
                self._summary.problems.append(f"no list for {user.name}: {user.problem}")
        for name in notices.moved[:1]:
            self._summary.notes.append(f"the path of the lists was taken: what was there is now {name}")
        self._summary.users_warned = sum(1 for user in users.values() if not user.problem)
        if self._settings.mail:
            path = os.path.join(self._settings.state, "mailed.json")
            mailed = _load(path)
            for uid, user in sorted(users.items()):
                if not self._mail(uid, user, mailed, notices):
                    break
            with open(path, "w", encoding="utf-8") as stream:
                json.dump({uid: when for uid, when in mailed.items() if int(uid) in users}, stream)

    def _mail(self, uid: int, user: UserNotice, mailed: dict[str, int], notices: Notices) -> bool:
        """False where the MTA hangs: each further mail would take as long, and deletion waits for all of them."""
        # at most two mails per notice period: every file is announced at least half of it before its deletion
        if user.problem or not can_be_mailed(self._settings.mail, user.name):
            return True
        if mailed.get(str(uid), 0) > self._now - self._settings.warn // 2:
            return True
        message = text(self._settings, user, notices.sample(user), _day(user.first_deletion))
        result = send(self._settings.sendmail, message)
        problem = f"no mail was sent: {result.failure}"
        if result.ok:
            self._summary.mails += 1
            mailed[str(uid)] = self._now
        elif problem not in self._summary.problems:
            self._summary.problems.append(problem)
        return result.status != command.TIMED_OUT

    def delete(self) -> None:
        """Delete what list_and_tell() found due."""
        if self._memory and self._memory.jumped and not self._settings.warns:
            # without notices there is no other protection against a clock that is years ahead
            self._summary.notes.append("nothing deleted: the last run was not in the last days; the next run deletes")
            return
        room = records.Budget(_LARGEST_LOG)
        with open(self._due_path, "rb") as due, self._log() as log:
            for outcome in delete(self._open_path, records.read(due), self._ages):
                if not outcome.why_kept:
                    self._summary.deleted += 1
                    self._summary.deleted_bytes += outcome.record.frees
                    line = _line(outcome.record)
                    if room.allows(outcome.record.uid, len(line)):
                        log.write(line)
                    continue
                not_deleted = self._summary.kept
                not_deleted[outcome.why_kept] = not_deleted.get(outcome.why_kept, 0) + 1
                if outcome.is_trouble and not_deleted[outcome.why_kept] == 1:
                    self._summary.problems.append(f"{records.shown(outcome.record.path)}: {outcome.why_kept}")

    def _log(self) -> IO[str]:
        directory = self._settings.logs
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for name in sorted(os.listdir(directory))[:-_KEPT_LOGS]:
            os.unlink(os.path.join(directory, name))
        # line-buffered: a power cut loses no line
        return open(os.path.join(directory, f"{_day(self._now)}.log"), "a", buffering=1, encoding="utf-8")

    def summary(self) -> Summary:
        """The result."""
        if self._seen:
            self._summary.looked_at = dict(self._seen.counts)
            # directories that are not entered are not errors
            self._summary.problems += [text for text in self._seen.problems if ": not entered: " not in text]
            self._summary.notes += [text for text in self._seen.problems if ": not entered: " in text]
        if self._warned and self._warned.restarted:
            notice = f"{in_days(self._settings.warn)} of notice"
            self._summary.notes.append(f"no run in the last days notified users: nothing is deleted before {notice}")
        return self._summary


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _line(record: Record) -> str:
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return (
        f"{when} {user_name(record.uid)} {record.size} bytes, last used {_day(record.used)}: "
        f"{records.shown(record.path)}\n"
    )


def _load(path: str) -> dict[str, int]:
    try:
        with open(path, encoding="utf-8") as stream:
            mailed = json.load(stream)
    except (OSError, ValueError):
        return {}
    return mailed if isinstance(mailed, dict) else {}

"""Notify users of files to be deleted: a list for each in `.to_delete` of the tree, and a mail if there is an MTA.

The tree is visible to users on every node; they may have no account on this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pwd
import re
import secrets
import stat
import time

from ..._shared import command
from .ageing import in_days
from .records import Budget, Record, shown
from .settings import Settings
from .tree import OpenPath
from .walk import NOTICES

_FLUSH = 1 << 20
# of one user's list: a million files of absurd names must not fill the disk with their names
_LARGEST = 1 << 20
_SAMPLE = 10
_MAIL_SECONDS = 60
_ADDRESS = re.compile(r"[A-Za-z0-9._+-]+(@[A-Za-z0-9.-]+)?")
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
# limits a race with a user who recreates the path
_ATTEMPTS = 1000


class NoticesError(Exception):
    """The directory for the lists can't be created safely."""


def user_name(uid: int) -> str:
    """An account's name, or its number where there is none, or none that is this user's alone."""
    try:
        name = pwd.getpwuid(uid).pw_name
        is_plain = not name.isdigit() and not name.startswith(".") and "/" not in name
        return name if is_plain and pwd.getpwnam(name).pw_uid == uid else str(uid)
    except KeyError:
        return str(uid)


class UserNotice:
    """Notice for one user; `problem` is why the list could not be written, '' if it could."""

    def __init__(self, uid: int) -> None:
        self.name = user_name(uid)
        self.files = 0
        self.size = 0
        self.first_deletion = 0
        self.left_out = 0
        self.problem = ""
        self.lines: list[str] = []


class Notices:
    """The lists of one run; they replace those of the last one."""

    def __init__(self, open_path: OpenPath, settings: Settings, now: int) -> None:
        self._settings = settings
        self._now = now
        self._users: dict[int, UserNotice] = {}
        self._budget = Budget(_LARGEST)
        self._waiting = 0
        # new names of files that were at the path of the lists
        self.moved: list[str] = []
        self._handle = self._open(open_path.here.handle)
        self._old = set(os.listdir(self._handle))
        for name in [name for name in self._old if name.startswith(".")]:
            # of an interrupted run
            self._remove(name)

    def _open(self, root: int) -> int:
        """The directory for the lists, root's own alone: anything else at its path is renamed."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileExistsError):
                os.mkdir(NOTICES, 0o711, dir_fd=root)
            handle = _own_directory(root)
            if handle is not None:
                # whatever root's umask is, users find their own list
                os.fchmod(handle, 0o711)
                return handle
            aside = f"{NOTICES.decode()}.{secrets.token_hex(8)}"
            try:
                os.rename(NOTICES, aside, src_dir_fd=root, dst_dir_fd=root)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.EBUSY or not _unmount(root):
                    raise
            else:
                self.moved.append(aside)
        raise NoticesError(f"{NOTICES.decode()}: it is recreated by another process again and again")

    def add(self, record: Record, deletion_time: int, day: str) -> None:
        """Add a file that will be deleted at a time (seconds since 1970), on a day."""
        user = self._users.get(record.uid) or self._users.setdefault(record.uid, UserNotice(record.uid))
        user.files += 1
        user.size += record.size
        user.first_deletion = min(user.first_deletion or deletion_time, deletion_time)
        line = f"{day} {shown(record.path)}\n"
        if not self._budget.allows(record.uid, len(line.encode("utf-8", "surrogateescape"))):
            user.left_out += 1
            return
        user.lines.append(line)
        self._waiting += len(line)
        if self._waiting > _FLUSH:
            self._flush()

    def _flush(self) -> None:
        for uid, user in self._users.items():
            if user.lines and not user.problem:
                self._append(uid, user)
            user.lines = []
        self._waiting = 0

    def _append(self, uid: int, user: UserNotice) -> None:
        """Where one list can't be written (a full disk, its owner's quota), the others still are."""
        name = _new(user)
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFE, 0o400, dir_fd=self._handle)
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
                os.fchown(stream.fileno(), uid, -1)
                if stream.tell() == 0:
                    stream.write(self._head())
                stream.writelines(user.lines)
        except OSError as error:
            user.problem = str(error.strerror)
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._old.discard(name)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._handle)

    def _head(self) -> str:
        settings = self._settings
        return (
            f"# {_day(self._now)}: in {settings.root}, {settings.unused} for "
            f"{in_days(settings.age - settings.warn)}; the day on which each goes. To keep one: touch it, or "
            "copy it away.\n"
        )

    def finish(self) -> dict[int, UserNotice]:
        """Publish the lists; returns the notice of each user."""
        for user in self._users.values():
            if user.left_out:
                user.lines.append(self._rest(user))
        self._flush()
        for user in self._users.values():
            self._replace(user)
        for name in self._old - {user.name for user in self._users.values()}:
            self._remove(name)
        return self._users

    def _replace(self, user: UserNotice) -> None:
        if user.problem:
            # the list of the last run stays
            return
        try:
            os.replace(_new(user), user.name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except OSError as error:
            user.problem = str(error.strerror)

    def _rest(self, user: UserNotice) -> str:
        settings = self._settings
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._now - (settings.age - settings.warn)))
        times = "".join(f" ! -newer{each}t '{since}'" for each in ("mc" if settings.ignore_reads else "amc"))
        return (
            f"# and {user.left_out} more, for which there is no room here: find "
            f"{shown(os.fsencode(settings.root))} -user {user.name}{times}\n"
        )

    def sample(self, user: UserNotice) -> list[str]:
        """The first lines of a list."""
        try:
            handle = os.open(user.name, os.O_RDONLY | _SAFE, dir_fd=self._handle)
        except OSError:
            return []
        with os.fdopen(handle, encoding="utf-8", errors="surrogateescape") as stream:
            return [line for line, _ in zip(stream, range(_SAMPLE + 1)) if not line.startswith("#")]

    def close(self) -> None:
        """Close the directory."""
        os.close(self._handle)


def _unmount(root: int) -> bool:
    """Detach what a user mounted (FUSE) in the place of the lists; never anything that a link leads to."""
    path = b"/proc/self/fd/%d/%s" % (root, NOTICES)
    return not ctypes.CDLL(None).umount2(path, _MNT_DETACH | _UMOUNT_NOFOLLOW)


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _new(user: UserNotice) -> str:
    return "." + user.name + ".new"


def _own_directory(root: int) -> int | None:
    """The open directory of the lists; None where it is not root's own: others could put links there."""
    try:
        handle = os.open(NOTICES, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=root)
    except OSError:
        return None
    status = os.fstat(handle)
    if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return handle
    os.close(handle)
    return None


def text(settings: Settings, user: UserNotice, sample: list[str], day: str) -> str:
    """The mail to a user."""
    root, files = settings.root, user.files
    reads = " To read it keeps nothing: this file system does not note it." if settings.ignore_reads else ""
    return (
        f"To: {_address(settings.mail, user.name)}\nSubject: {files} of your files in {root} go from {day} on\n"
        "Auto-Submitted: auto-generated\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
        f"{root} is scratch: what was {settings.unused} for {in_days(settings.age)} is deleted.\n\n"
        f"{files} of your files ({user.size / (1 << 30):.1f} GiB) are that old soon, the first on {day}."
        " All of them:\n\n"
        f"    {root}/{NOTICES.decode()}/{user.name}\n\nThe first of that list:\n\n"
        f"{''.join('    ' + line for line in sample)}\n"
        f"To keep a file, `touch` it or copy it to where it can stay.{reads}\n"
    )


def _address(mail: str, name: str) -> str:
    return name if mail == "local" else f"{name}@{mail}"


def can_be_mailed(mail: str, name: str) -> bool:
    """Whether a user has an address: accounts without a name have none, nor has what would not be one."""
    return not name.isdigit() and _ADDRESS.fullmatch(_address(mail, name)) is not None


def send(sendmail: str, message: str) -> command.Result:
    """Send a mail by the node's MTA."""
    return command.run_merged([sendmail, "-t", "-i"], _MAIL_SECONDS, message)

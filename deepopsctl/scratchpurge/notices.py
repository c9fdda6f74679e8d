"""Tell users what will go: a list for each in `.to_delete` of the tree itself, and a mail where there is an MTA.

The tree is where users look from every node; this machine may be one on which they have no account.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
import subprocess
from typing import Dict, List

from .ageing import in_days
from .records import Record, quoted
from .settings import Settings
from .tree import Way
from .walk import NOTICES

_FLUSH = 1 << 20
_SAMPLE = 10
_MAIL_SECONDS = 60
_ADDRESS = re.compile(r"[A-Za-z0-9._+-]+(@[A-Za-z0-9.-]+)?")


class NoticesError(Exception):
    """There is no safe place for the lists."""


def user_name(uid: int) -> str:
    """An account's name, or its number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class Told:
    """What one user is told."""

    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.first_goes = 0
        self.sample: List[str] = []
        self.lines: List[str] = []


class Notices:
    """The lists of one run; they replace those of the last one."""

    def __init__(self, way: Way, settings: Settings, date: str) -> None:
        self._settings = settings
        self._date = date
        self._users: Dict[int, Told] = {}
        self._waiting = 0
        self._handle = _open(way)
        self._old = set(os.listdir(self._handle))

    def add(self, record: Record, goes: int, day: str) -> None:
        """One file that goes at a time (seconds since 1970), on a day."""
        user = self._users.setdefault(record.uid, Told())
        user.files += 1
        user.size += record.size
        user.first_goes = min(user.first_goes or goes, goes)
        line = "{} {}\n".format(day, quoted(record.path))
        if len(user.sample) < _SAMPLE:
            user.sample.append(line)
        user.lines.append(line)
        self._waiting += len(line)
        if self._waiting > _FLUSH:
            self._flush()

    def _flush(self) -> None:
        for uid, user in self._users.items():
            if user.lines:
                self._append(uid, user)
                user.lines = []
        self._waiting = 0

    def _append(self, uid: int, user: Told) -> None:
        name = "." + user_name(uid) + ".new"
        if name in self._old:
            # of a run that was cut off
            os.unlink(name, dir_fd=self._handle)
            self._old.discard(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, 0o400, dir_fd=self._handle)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchown(stream.fileno(), uid, -1)
            if stream.tell() == 0:
                stream.write(self._head())
            stream.writelines(user.lines)

    def _head(self) -> str:
        return "# {}: in {}, not used for {}; the day on which each goes. Use it before, or copy it away.\n".format(
            self._date, self._settings.root, in_days(self._settings.age - self._settings.warn)
        )

    def finish(self) -> Dict[int, Told]:
        """Put the lists in place; returns what each user was told."""
        self._flush()
        kept = set()
        for uid in self._users:
            name = user_name(uid)
            os.replace("." + name + ".new", name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
            kept.add(name)
        for name in self._old - kept:
            os.unlink(name, dir_fd=self._handle)
        return self._users

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._handle)


def _open(way: Way) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        os.mkdir(NOTICES, 0o711, dir_fd=way.here.handle)
    try:
        handle = os.open(NOTICES, flags, dir_fd=way.here.handle)
    except OSError as error:
        raise NoticesError("{}: {}".format(NOTICES.decode(), error.strerror)) from error
    status = os.fstat(handle)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(handle)
        raise NoticesError("{}: not a folder of root's: others could put links there".format(NOTICES.decode()))
    # whatever root's umask is, users find their own list
    os.fchmod(handle, 0o711)
    return handle


def text(settings: Settings, uid: int, user: Told, day: str) -> str:
    """The mail to a user."""
    name = user_name(uid)
    return (
        "To: {to}\nSubject: {files} of your files in {root} go from {day} on\nAuto-Submitted: auto-generated\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
        "{root} is scratch: what was not used for {age} is deleted.\n\n"
        "{files} of your files ({gib:.1f} GiB) are that old soon, the first on {day}. All of them:\n\n"
        "    {root}/{folder}/{name}\n\nThe first of that list:\n\n{sample}\n"
        "To keep a file, use it (open it, or `touch` it) or copy it to where it can stay.\n"
    ).format(
        to=_address(settings.mail, name),
        files=user.files,
        root=settings.root,
        day=day,
        age=in_days(settings.age),
        gib=user.size / (1 << 30),
        folder=NOTICES.decode(),
        name=name,
        sample="".join("    " + line for line in user.sample),
    )


def _address(mail: str, name: str) -> str:
    return name if mail == "local" else "{}@{}".format(name, mail)


def can_be_told(mail: str, uid: int) -> bool:
    """Whether a user has an address: accounts without a name have none, nor has what would not be one."""
    name = user_name(uid)
    return not name.isdigit() and _ADDRESS.fullmatch(_address(mail, name)) is not None


def send(sendmail: str, message: str) -> str:
    """Hand a mail to the machine's MTA; returns what went wrong, or ''."""
    try:
        done = subprocess.run(
            [sendmail, "-t", "-i"],
            input=message.encode("utf-8", "surrogateescape"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_MAIL_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return "no mail was sent: there is no {} here".format(sendmail)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "no mail was sent: {}".format(error)
    words = done.stdout.decode(errors="replace").strip()[-200:]
    return "no mail was sent: {} exits {}: {}".format(sendmail, done.returncode, words) if done.returncode else ""

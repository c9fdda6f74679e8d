"""What one node does for a trial, each in a process of its own: a file system that hangs hangs nothing else.

Packed into the jobs' input: no relative imports but of what is packed with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import signal
import stat
import time
from typing import Any, Callable, Dict, List

PREFIX = "deepopsctl-storage-"
# one small write, whole or not at all: what a reader of another node must find
PAGE = 4096
FREE, HELD, NONE = "free", "held", "none"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
Result = Dict[str, Any]


def content(label: str, version: int, size: int = PAGE) -> bytes:
    """A file's text: the same line all through, so that a torn one is noticed."""
    line = "{} {}\n".format(label, version).encode()
    return (line * (size // len(line) + 1))[:size]


def digest(data: bytes) -> str:
    """What two nodes compare."""
    return hashlib.sha256(data).hexdigest()[:16]


def base(path: str, wanted: str) -> Result:
    """Where an ordinary user may write below a mount point: what was declared, else the usual places."""
    own = os.path.expanduser("~")
    user = os.path.basename(own.rstrip("/"))
    usual = [path, os.path.join(path, user), *([own] if own.startswith(path.rstrip("/") + "/") else [])]
    # mounts what is mounted at first use; stat() and access() do not, and would check the empty directory below it
    with contextlib.suppress(OSError):
        os.statvfs(path)
    for directory in [wanted] if wanted else usual:
        if os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK):
            return {"directory": directory}
    return {"directory": "", "tried": [wanted] if wanted else usual}


def refused(directory: str, name: str) -> Result:
    """Try to write where that should be impossible; the error's name, '' where it was possible."""
    path = os.path.join(directory, name)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        return {"refused": errno.errorcode.get(error.errno or 0, str(error.errno))}
    os.unlink(path)
    return {"refused": ""}


def make(directory: str) -> Result:
    """Make the trial's directory, for this user alone."""
    os.mkdir(directory, 0o700)
    return {}


def write(path: str, label: str, version: int, size: int = PAGE) -> Result:
    """Write a file in place, force it to the server, read it back."""
    data = content(label, version, size)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        _write_all(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    return read(path)


def read(path: str) -> Result:
    """Open again and read; `missing` where there is no such name."""
    try:
        with open(path, "rb") as stream:
            return {"digest": digest(stream.read())}
    except FileNotFoundError:
        return {"missing": True}


def absent(path: str) -> Result:
    """Check a name that does not exist: the client may remember that."""
    return {"missing": not os.path.lexists(path)}


def appears(path: str, seconds: float, pause: float = 0.25) -> Result:
    """Wait for a name to appear; after how many seconds, none where it never was."""
    started = time.monotonic()
    while not os.path.lexists(path):
        if time.monotonic() - started > seconds:
            return {"after": None}
        time.sleep(pause)
    return {"after": round(time.monotonic() - started, 2)}


def replace(path: str, seconds: float) -> Result:
    """Put one new version after the other in the place of a file, by rename."""
    count, until, new = 0, time.monotonic() + seconds, path + ".new"
    while time.monotonic() < until:
        count += 1
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(handle, content("version", count))
        finally:
            os.close(handle)
        os.rename(new, path)
    return {"renames": count}


def follow(path: str, seconds: float) -> Result:
    """Read a file that is being replaced: it must always be there, and whole."""
    counts = {"reads": 0, "missing": 0, "torn": 0, "stale": 0}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        counts["reads"] += 1
        try:
            with open(path, "rb") as stream:
                data = stream.read()
        except OSError as error:
            counts["stale" if error.errno == errno.ESTALE else "missing"] += 1
            continue
        # a line of another version, or fewer bytes than were ever written at once
        if len(data) != PAGE or data != (data[: data.find(b"\n") + 1] * PAGE)[:PAGE]:
            counts["torn"] += 1
    return counts


def hold(path: str, lock_type: str) -> Result:
    """Take a lock for writing; it is held until this process is ended."""
    return {"lock": _lock(path, lock_type, fcntl.LOCK_EX)}


def probe(path: str, lock_type: str) -> Result:
    """Whether a lock for reading could be had now."""
    return {"lock": _lock(path, lock_type, fcntl.LOCK_SH)}


def _lock(path: str, lock_type: str, how: int) -> str:
    # left open: closing releases the lock, and the process is short-lived
    handle = os.open(path, os.O_RDWR)
    lock: Callable[[int, int], None] = fcntl.lockf if lock_type == "fcntl" else fcntl.flock
    try:
        lock(handle, how | fcntl.LOCK_NB)
    except OSError as error:
        return NONE if error.errno in _NO_LOCKS else HELD
    return FREE


def remove(directories: List[str]) -> Result:
    """Remove trials' directories; nothing else, and through no link."""
    left = []
    for directory in directories:
        if os.path.basename(directory).startswith(PREFIX):
            shutil.rmtree(directory, ignore_errors=True)
            left += [directory] if os.path.lexists(directory) else []
    return {"left": left}


def answers(path: str) -> Result:
    """Ask the file system for its size: a server that is away makes this hang. Reports a path that is no directory."""
    status = os.statvfs(path)
    return {"bytes": status.f_blocks * status.f_frsize, "directory": stat.S_ISDIR(os.stat(path).st_mode)}


def room(directory: str) -> Result:
    """Bytes that an ordinary user may still write there, as the file system reports it."""
    status = os.statvfs(directory)
    return {"free": status.f_bavail * status.f_frsize}


def wait() -> None:
    """Do nothing until ended."""
    while True:
        signal.pause()


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


OPERATIONS: Dict[str, Callable[..., Result]] = {
    "base": base, "refused": refused, "make": make, "write": write, "read": read, "absent": absent,
    "appears": appears, "replace": replace, "follow": follow, "hold": hold, "probe": probe, "remove": remove,
    "answers": answers, "room": room,
}  # fmt: skip

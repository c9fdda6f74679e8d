"""What one node does for a trial, each in a process of its own: a file system that hangs hangs nothing else.

What is measured is the file system, not this node's memory: files are opened for direct transfer where that is
possible, else forced to the server and dropped from memory before they are read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import signal
import stat
import time
from typing import Any, Callable

from ..._shared import command
from ..._shared.waiting import wait_until

PREFIX = "deepopsctl-storage-"
# one small write, whole or not at all: what a reader of another node must find
PAGE = 4096
FREE, HELD, NONE = "free", "held", "none"
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
MIB = 1024 * 1024
# fio's own start and end, in addition to the time it measures
_FIO_EXTRA_S = 30
Result = dict[str, Any]


def content(label: str, version: int, size: int = PAGE) -> bytes:
    """A file's text: the same line all through, so that a torn one is noticed."""
    line = f"{label} {version}\n".encode()
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
    is_there = wait_until(lambda: os.path.lexists(path), seconds, pause)
    return {"after": round(time.monotonic() - started, 2) if is_there else None}


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


def remove(directories: list[str]) -> Result:
    """Remove trials' directories; nothing else, and through no link."""
    left = []
    for directory in directories:
        if os.path.basename(directory).startswith(PREFIX):
            shutil.rmtree(directory, ignore_errors=True)
            left += [directory] if os.path.lexists(directory) else []
    return {"left": left}


def answers(path: str) -> Result:
    """Ask the file system for its size: a server that is away makes this hang. Reports what is not a directory."""
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


def write_rate(path: str, size_mib: int, seconds: float) -> Result:
    """MiB/s of one stream into a new file."""
    return _measured("write", path, size_mib, seconds)


def read_rate(path: str, size_mib: int, seconds: float) -> Result:
    """MiB/s of one stream out of a file, best one that another node wrote."""
    there = os.stat(path).st_size // MIB
    return _measured("read", path, min(size_mib, there), seconds) if there else {"rate": 0.0, "by": "nothing to read"}


def metadata_rate(directory: str, most: int, seconds: float) -> Result:
    """Files a second: created, read (stat), renamed and removed, one after the other."""
    mine = os.path.join(directory, f"files-{os.getpid()}")
    os.mkdir(mine, 0o700)
    started, count = time.monotonic(), 0
    try:
        while count < most and time.monotonic() - started < seconds:
            path = os.path.join(mine, f"f{count}")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.stat(path)
            os.rename(path, path + ".r")
            os.unlink(path + ".r")
            count += 1
        elapsed = time.monotonic() - started
    finally:
        shutil.rmtree(mine, ignore_errors=True)
    return {"rate": round(count / elapsed, 1), "by": "own loop", "count": count}


def _measured(how: str, path: str, size_mib: int, seconds: float) -> Result:
    fio = shutil.which("fio", path="/usr/local/bin:/usr/bin:/bin")
    for direct in (True, False):
        try:
            return (
                _fio(fio, how, path, size_mib, seconds, direct=direct)
                if fio
                else _own(how, path, size_mib, seconds, direct=direct)
            )
        except OSError:
            # some file systems know no direct transfer
            if not direct:
                raise
    raise AssertionError


def _fio(fio: str, how: str, path: str, size_mib: int, seconds: float, *, direct: bool) -> Result:
    argv = [fio, "--name=deepopsctl", "--filename=" + path, "--rw=" + how, "--bs=1M", f"--size={size_mib}M"]
    argv += ["--ioengine=psync", f"--direct={int(direct)}", f"--runtime={seconds:g}", "--thread"]
    argv += ["--end_fsync=1"] if how == "write" else ["--readonly"]
    result = command.run([*argv, "--output-format=json"], seconds + _FIO_EXTRA_S)
    rate = _fio_rate(result.output, how) if result.ok else 0.0
    if not rate:
        raise OSError(None, f"fio ended with {result.status}: {result.message[-300:]}")
    return {"rate": round(rate, 1), "by": "fio", "direct": direct}


def _fio_rate(text: str, how: str) -> float:
    """MiB/s in what fio printed (it prints notes as well); 0 where it says none."""
    try:
        job = json.loads(text[text.index("{") :])["jobs"][0]
        # the whole run time has the last fsync in it, a write's own has not
        elapsed = max(float(job.get("job_runtime") or 0), float(job[how]["runtime"])) / 1000
        return float(job[how]["io_bytes"]) / MIB / elapsed if elapsed else 0.0
    except (ValueError, KeyError, IndexError):
        return 0.0


def _own(how: str, path: str, size_mib: int, seconds: float, *, direct: bool) -> Result:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if how == "write" else os.O_RDONLY
    handle = os.open(path, flags | (os.O_DIRECT if direct else 0), 0o600)
    try:
        if how == "read":
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        # memory of whole pages, as direct transfer wants it; not all zeros, which some servers do not store
        block = mmap.mmap(-1, MIB)
        block.write(os.urandom(MIB))
        done, elapsed = _transfer(handle, how, block, size_mib, seconds)
    finally:
        os.close(handle)
    return {"rate": round(done / MIB / max(elapsed, 1e-6), 1), "by": "own loop", "direct": direct}


def _transfer(handle: int, how: str, block: mmap.mmap, size_mib: int, seconds: float) -> tuple[int, float]:
    started, done = time.monotonic(), 0
    moves: dict[str, Callable[[int, list[mmap.mmap]], int]] = {"write": os.writev, "read": os.readv}
    while done < size_mib * MIB and time.monotonic() - started < seconds:
        moved = moves[how](handle, [block])
        if not moved:
            break
        done += moved
    if how == "write":
        os.fsync(handle)
    return done, time.monotonic() - started


OPERATIONS: dict[str, Callable[..., Result]] = {
    "base": base, "refused": refused, "make": make, "write": write, "read": read, "absent": absent,
    "appears": appears, "replace": replace, "follow": follow, "hold": hold, "probe": probe, "remove": remove,
    "answers": answers, "room": room, "write_rate": write_rate, "read_rate": read_rate, "metadata_rate": metadata_rate,
}  # fmt: skip

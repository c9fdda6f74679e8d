"""How fast a node writes, reads and makes files: by fio where it is, else by own loops. Bounded in size and time.

What is measured is the file system, not this node's memory: files are opened for direct transfer where that is
possible, else forced to the server and dropped from memory before they are read. Packed into the jobs' input.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, List, Tuple

MIB = 1024 * 1024
# fio's own start and end, in addition to the time it measures
_FIO_EXTRA_S = 30
Result = Dict[str, Any]


def write_rate(path: str, size_mib: int, seconds: float) -> Result:
    """MiB/s of one stream into a new file."""
    return _measured("write", path, size_mib, seconds)


def read_rate(path: str, size_mib: int, seconds: float) -> Result:
    """MiB/s of one stream out of a file, best one that another node wrote."""
    there = os.stat(path).st_size // MIB
    return _measured("read", path, min(size_mib, there), seconds) if there else {"rate": 0.0, "by": "nothing to read"}


def metadata_rate(directory: str, most: int, seconds: float) -> Result:
    """Files a second: created, read (stat), renamed and removed, one after the other."""
    mine = os.path.join(directory, "files-{}".format(os.getpid()))
    os.mkdir(mine, 0o700)
    started, count = time.monotonic(), 0
    try:
        while count < most and time.monotonic() - started < seconds:
            path = os.path.join(mine, "f{}".format(count))
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
                _fio(fio, how, path, size_mib, seconds, direct) if fio else _own(how, path, size_mib, seconds, direct)
            )
        except OSError:
            # some file systems know no direct transfer
            if not direct:
                raise
    raise AssertionError


def _fio(fio: str, how: str, path: str, size_mib: int, seconds: float, direct: bool) -> Result:
    argv = [fio, "--name=deepopsctl", "--filename=" + path, "--rw=" + how, "--bs=1M", "--size={}M".format(size_mib)]
    argv += ["--ioengine=psync", "--direct={}".format(int(direct)), "--runtime={:g}".format(seconds), "--thread"]
    argv += ["--end_fsync=1"] if how == "write" else ["--readonly"]
    done = subprocess.run(
        [*argv, "--output-format=json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=seconds + _FIO_EXTRA_S,
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    rate = _fio_rate(text, how) if done.returncode == 0 else 0.0
    if not rate:
        message = (done.stderr.decode(errors="replace") or text).strip()[-300:]
        raise OSError(None, "fio ended with {}: {}".format(done.returncode, message))
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


def _own(how: str, path: str, size_mib: int, seconds: float, direct: bool) -> Result:
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


def _transfer(handle: int, how: str, block: mmap.mmap, size_mib: int, seconds: float) -> Tuple[int, float]:
    started, done = time.monotonic(), 0
    moves: Dict[str, Callable[[int, List[mmap.mmap]], int]] = {"write": os.writev, "read": os.readv}
    while done < size_mib * MIB and time.monotonic() - started < seconds:
        moved = moves[how](handle, [block])
        if not moved:
            break
        done += moved
    if how == "write":
        os.fsync(handle)
    return done, time.monotonic() - started


OPERATIONS: Dict[str, Callable[..., Result]] = {
    "write_rate": write_rate, "read_rate": read_rate, "metadata_rate": metadata_rate,
}  # fmt: skip

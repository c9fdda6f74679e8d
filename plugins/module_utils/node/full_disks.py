"""File systems without room for what the cluster needs: Slurm's state, the accounting database, the system itself."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import Any

SLURM_CONF = "/etc/slurm/slurm.conf"
DATABASE = "/var/lib/mysql"
SLURMCTLD = ("/usr/sbin/slurmctld", "/usr/local/sbin/slurmctld")
_STATE = re.compile(r"^[ \t]*StateSaveLocation[ \t]*=[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
# full is below both: a small file system has little, and a large one is not full with a few GiB
LEAST_MB, LEAST_SHARE = 500, 0.05
LEAST_INODES = 0.02
# a file server that is away must not keep the answer about all others
PATIENCE_S = 3


def full() -> list[dict[str, Any]]:
    """[{path, what, free_mb, why}]: `why` is `space`, `files` or `read-only`; one for each file system."""
    entries, devices = [], set()
    for path, what in places():
        status, device = _ask(path)
        if status is None or device in devices:
            continue
        devices.add(device)
        why = reason(status)
        if why:
            entries.append(
                {"path": path, "what": what, "free_mb": status.f_bavail * status.f_frsize // 2**20, "why": why}
            )
    return entries


def places() -> list[tuple[str, str]]:
    """What must not be full here, the most important first."""
    wanted = [(DATABASE, "the accounting database"), ("/var", "the system"), ("/", "the system")]
    if any(os.path.exists(path) for path in SLURMCTLD):
        wanted.insert(0, (state_directory(), "Slurm's state"))
    return [(path, what) for path, what in wanted if path]


def state_directory() -> str:
    """StateSaveLocation; '' where it is not known."""
    try:
        with open(SLURM_CONF, encoding="utf-8", errors="replace") as stream:
            written = _STATE.findall(stream.read())
    except OSError:
        return ""
    return written[-1] if written else ""


def reason(status: os.statvfs_result) -> str:
    """Why nothing can be written there, for others than root; '' for nothing."""
    if status.f_flag & os.ST_RDONLY:
        return "read-only"
    free = status.f_bavail * status.f_frsize
    if free < LEAST_MB * 2**20 and free < LEAST_SHARE * status.f_blocks * status.f_frsize:
        return "space"
    if status.f_files and status.f_favail < LEAST_INODES * status.f_files:
        return "files"
    return ""


def _ask(path: str) -> tuple[os.statvfs_result, int] | tuple[None, None]:
    """(statvfs, device) of a path; (None, None) where it is not there, or does not answer."""
    answers = []

    def ask() -> None:
        with contextlib.suppress(OSError):
            answers.append((os.statvfs(path), os.stat(path).st_dev))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return answers[0] if answers else (None, None)

"""The package manager: who works with it, and what it was interrupted in."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Any

from ..._shared import packages_query
from .query import read

RPM_LOCKS = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")
# l_type, l_whence, l_start, l_len, l_pid with the padding of 64-bit Linux
FLOCK = "hhqqi4x"


def state() -> dict[str, Any]:
    """Manager, lock (None without a lock, or where only root can see it), packages in a broken state."""
    if os.path.isdir(packages_query.DATABASE):
        return {
            "manager": "dpkg",
            "lock": first_lock(packages_query.LOCKS),
            "broken": packages_query.broken(),
            "interrupted": bool(packages_query.interrupted()),
            "seen": os.geteuid() == 0,
        }
    known = os.path.isdir("/var/lib/rpm") or os.path.isdir("/usr/lib/sysimage/rpm")
    return {
        "manager": "rpm" if known else "",
        "lock": first_lock(RPM_LOCKS),
        "broken": [],
        "interrupted": False,
        "seen": known and os.geteuid() == 0,
    }


def first_lock(paths: Any) -> dict[str, Any] | None:
    """The first of these files that a process has locked."""
    for path in paths:
        pid = holder(path)
        if pid:
            return {"path": path, "pid": pid, "command": read(f"/proc/{pid}/comm") or "?"}
    return None


def holder(path: str) -> int:
    """The process that holds a lock on the file, asked without taking it; 0 for none."""
    try:
        with open(path, "rb") as stream:
            wanted = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack(FLOCK, fcntl.fcntl(stream, fcntl.F_GETLK, wanted))
    except OSError:
        return 0
    return int(answer[4]) if answer[0] != fcntl.F_UNLCK else 0


def versions() -> dict[str, str]:
    """The packages of Slurm's and munge's that are installed, with their versions."""
    return packages_query.installed(["munge", "slurm-client", "slurmctld", "slurmd", "slurmdbd", "slurm-smd*"])

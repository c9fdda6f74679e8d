"""Which processes of this node use a directory: by what they have open or mapped, and by their environment."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterable, Sequence

PROC = "/proc"
# enough for a person to know whom to ask
LISTED = 5
_READ = 4 << 20
_JOB = re.compile(rb"/job_(\d{1,10})(?:/|$)", re.MULTILINE)


def users_of(places: Sequence[str]) -> list[str]:
    """`/opt/.../dl/2026.12: job 42 of alice`, a sentence for each job, or process without one."""
    patterns = {place: re.compile(re.escape(place.encode()) + rb"(?=[/\0:\n\"']|$)") for place in places}
    sentences: dict[str, None] = {}
    for pid in filter(str.isdigit, os.listdir(PROC)):
        if int(pid) == os.getpid():
            continue
        texts = list(_texts(os.path.join(PROC, pid)))
        for place, pattern in patterns.items():
            if any(pattern.search(text) for text in texts):
                sentences[f"{place}: {_process(pid)}"] = None
    listed = sorted(sentences)
    more = len(listed) - LISTED
    return [*listed[:LISTED], *([f"and {more} more"] if more > 0 else [])]


def _texts(directory: str) -> Iterable[bytes]:
    for name in ("environ", "maps"):
        with contextlib.suppress(OSError), open(os.path.join(directory, name), "rb") as stream:
            yield stream.read(_READ)
    for name in ("cwd", "exe"):
        with contextlib.suppress(OSError):
            yield os.readlink(os.path.join(directory, name)).encode(errors="surrogateescape")


def _process(pid: str) -> str:
    """`job 42 of alice`, or `process 4711 of alice`; a process that has just ended is its number."""
    user, job = "", None
    with contextlib.suppress(OSError, KeyError):
        user = " of " + pwd.getpwuid(os.stat(os.path.join(PROC, pid)).st_uid).pw_name
    with contextlib.suppress(OSError), open(os.path.join(PROC, pid, "cgroup"), "rb") as stream:
        job = _JOB.search(stream.read(_READ))
    return (f"job {job[1].decode()}" if job else f"process {pid}") + user

"""The file by which the slurmctld in control shows that it lives: a time and its number, 64 bits each."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

FILE = "heartbeat"
SLURM = "slurm"
# what slurmctld and all commands on a controller read
SLURM_CONF = "/etc/slurm/slurm.conf"
# Slurm's own default of SlurmctldTimeout
DEFAULT_TIMEOUT_S = 120
_TIMEOUT = re.compile(r"^[ \t]*SlurmctldTimeout[ \t]*=[ \t]*([0-9]{1,6})", re.IGNORECASE | re.MULTILINE)
_FORM = struct.Struct(">QQ")
# slurmctld removes the old file before it links the new one
_TRIES = 3


class Heartbeat(NamedTuple):
    """When it was written, by the clock of the controller in control, and which of them that is (0 is the first)."""

    stamp: int
    number: int


def read(directory: str) -> Heartbeat | None:
    """The last heartbeat; None where there is none, or where it can't be read."""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.1)
        try:
            with open(os.path.join(directory, FILE), "rb") as stream:
                return Heartbeat(*_FORM.unpack(stream.read(_FORM.size)))
        except (OSError, struct.error):
            continue
    return None


def timeout_s(path: str = SLURM_CONF) -> int:
    """SlurmctldTimeout as it is now: an upgrade raises it for its time. Heartbeats come four times as often."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            written = _TIMEOUT.findall(stream.read())
    except OSError:
        return DEFAULT_TIMEOUT_S
    return int(written[-1]) if written else DEFAULT_TIMEOUT_S


@contextlib.contextmanager
def as_slurm() -> Iterator[None]:
    """Read and write as Slurm's user: a file server may refuse root."""
    if os.geteuid() != 0:
        yield
        return
    user = pwd.getpwnam(SLURM)
    with as_user(user.pw_uid, user.pw_gid):
        yield


@contextlib.contextmanager
def as_user(uid: int, gid: int) -> Iterator[None]:
    """Files are opened by these ids; nothing changes where root does not run this."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)

"""One run at a time per cluster: a lock that a killed process does not leave behind."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from deepopsctl.errors import DeepOpsError
from deepopsctl.files import naming
from deepopsctl.node_programs._shared.waiting import wait_until

# Clusters that this process has locked, each with a token: a command with several runs keeps the lock
# between them, here and on the first controller.
_held: dict[Path, str] = {}
# Seconds that a killed run may take to end its Ansible before the next one is refused.
ENDING_S = 10.0
# Seconds that `status` or `runs list` may have the lock file while they ask whether it is held.
ASKING_S = 0.3


class ClusterBusyError(DeepOpsError):
    """Another run works on the same cluster."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of the lock, for error messages."""

    pid: int
    user: str
    host: str
    command: str
    since: str

    @classmethod
    def me(cls, command: str) -> Holder:
        """This process."""
        now = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
        return cls(os.getpid(), _user(), socket.gethostname(), command, now)


def ansible_lock(runs: Path) -> Path:
    """The file that a running Ansible keeps locked, even after its deepopsctl has died."""
    return runs / ".ansible.lock"


@contextmanager
def cluster_lock(runs: Path, command: str) -> Iterator[None]:
    """Lock the cluster for one run, or raise with the name of the holder; nested locks of one process are allowed.

    flock() instead of an existing file: the kernel releases it when its holder dies, kill -9 included.
    """
    if runs in _held:
        _wait_for_ansible(runs)
        yield
        return
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(runs / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _acquire_within(handle, ASKING_S):
            raise _busy(handle)
        _wait_for_ansible(runs)
        os.ftruncate(handle, 0)
        with naming(runs / ".lock"):
            os.pwrite(handle, json.dumps(asdict(Holder.me(command))).encode(), 0)
        _held[runs] = secrets.token_hex(8)
        yield
        os.ftruncate(handle, 0)
    finally:
        _held.pop(runs, None)
        os.close(handle)


def token_of(runs: Path) -> str:
    """The unique token of this lock; '' if this process does not hold it."""
    return _held.get(runs, "")


def is_held(runs: Path) -> bool:
    """Whether any run holds the cluster, or its Ansible still runs; OSError if that is unknown."""
    for path in (runs / ".lock", ansible_lock(runs)):
        with _opened(path) as handle:
            if _is_locked(handle):
                return True
    return False


def is_held_by(runs: Path, pid: int) -> bool:
    """Whether the run of this process still holds the cluster."""
    try:
        with _opened(runs / ".lock") as handle:
            holder = _holder(handle) if _is_locked(handle) else None
    except OSError:
        return False
    return holder is not None and holder.pid == pid


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _acquire(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire_within(handle: int, seconds: float) -> bool:
    return wait_until(lambda: _acquire(handle), seconds, 0.01)


def _wait_for_ansible(runs: Path) -> None:
    """Wait until the Ansible of a killed run has ended; never run at the same time."""
    handle = os.open(ansible_lock(runs), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _acquire_within(handle, ENDING_S):
            raise ClusterBusyError(
                f"the Ansible of an earlier run still works on {runs.parent}",
                f"wait for it to end; `fuser -v {ansible_lock(runs)}` names its processes",
            )
    finally:
        os.close(handle)


def _holder(handle: int) -> Holder | None:
    """The holder in the lock file; None if it has not been written yet."""
    try:
        return Holder(**json.loads(os.pread(handle, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _busy(handle: int) -> ClusterBusyError:
    holder = _holder(handle)
    if holder is None:
        return ClusterBusyError("another run works on this cluster", "try again when it has ended")
    return ClusterBusyError(
        f"another run works on this cluster: {holder.command}, started by {holder.user} "
        f"on {holder.host} (pid {holder.pid}) at {holder.since}",
        "wait until it has ended, or stop it with Ctrl-C where it runs",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

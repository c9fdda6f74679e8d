"""Whether controllers share a directory: each writes a word, and reads those of the others."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import stat
from typing import Any

from ..._shared.mount_table import NETWORK, mounted_type
from .heartbeat import SLURM, as_slurm, as_user

LENT = ".deepopsctl-check-"


class NotSharedError(Exception):
    """Why the state of several controllers can't be there; the hint says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def check_mount(request: dict[str, Any]) -> None:
    """The path is mounted, from a server or as something that cluster.yml says is shared."""
    path = request["mount"]
    fstype = mounted_type(path)
    if not fstype:
        raise NotSharedError(
            f"nothing is mounted on {path}: slurmctld would find no jobs there, and end those that run",
            "`deepopsctl deploy storage` mounts it",
        )
    if request["network"] and not NETWORK.fullmatch(fstype):
        raise NotSharedError(
            f"{fstype} is mounted on {path}, which is this controller's alone",
            "`deepopsctl deploy storage` mounts what cluster.yml says",
        )
    status = os.stat(path)
    if status.st_mode & 0o022 or (has_slurm() and status.st_uid not in (0, pwd.getpwnam(SLURM).pw_uid)):
        raise NotSharedError(
            f"others than root and {SLURM} may write in {path} (it is {_owner_and_mode(status)});"
            f" the user who makes {request['directory']} first would own the state",
            f"on its file server: chown root (or {SLURM}) and chmod 755, or name another entry in slurm_state",
        )


def _owner_and_mode(status: os.stat_result) -> str:
    return f"of user id {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"


def has_slurm() -> bool:
    """Whether Slurm's user is there: before the first deploy it is not."""
    try:
        pwd.getpwnam(SLURM)
    except KeyError:
        return False
    return True


def write(request: dict[str, Any]) -> str:
    """Leave a word for the others, and return it; '' where only Slurm's user may write, who is not there yet."""
    check_mount(request)
    word = secrets.token_hex(16)
    if not has_slurm():
        try:
            _put(_path(request["mount"], request["host"]), word)
        except PermissionError:
            return ""
        return word
    _make_directory(request["directory"])
    with as_slurm():
        try:
            _put(_path(request["directory"], request["host"]), word)
        except OSError as error:
            raise NotSharedError(
                f"the user {SLURM} can't write in {request['directory']}: {error.strerror}",
                "let it have that directory on the file server; its ids are the same on all controllers",
            ) from error
    return word


def read(request: dict[str, Any]) -> None:
    """Read what the other controllers have written."""
    unseen = [host for host, word in sorted(request["words"].items()) if word and not _is_seen(request, host, word)]
    if unseen:
        writers = " and ".join(unseen)
        raise NotSharedError(
            f"{request['mount']} is not shared: what {writers} wrote there is not seen by {request['host']}",
            "mount the same directory of one file server on all controllers",
        )


def _is_seen(request: dict[str, Any], host: str, word: str) -> bool:
    """Slurm's user may be there on this controller and not on the new one, or the other way round."""
    with contextlib.suppress(OSError):
        owner = os.stat(request["directory"])
        with as_user(owner.st_uid, owner.st_gid):
            if _get(request["directory"], host) == word:
                return True
    return _get(request["mount"], host) == word


def remove(request: dict[str, Any]) -> None:
    """Remove the word again."""
    for directory in (request["directory"], request["mount"]):
        with contextlib.suppress(OSError), as_slurm() if has_slurm() else contextlib.nullcontext():
            os.unlink(_path(directory, request["host"]))
        with contextlib.suppress(OSError):
            os.unlink(_path(directory, request["host"]))


def _make_directory(path: str) -> None:
    """Slurm's own, made by root or, where the server squashes root, by its user. No other one is taken."""
    user = pwd.getpwnam(SLURM)
    # that of the mount, not what another user has put at its name meanwhile
    within = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        try:
            # another controller may be faster, and not have given it to Slurm yet
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=within)
        except PermissionError:
            with contextlib.suppress(OSError), as_slurm():
                os.mkdir(name, 0o700, dir_fd=within)
        _give_to_slurm(path, name, within, user)
    finally:
        os.close(within)


def _give_to_slurm(path: str, name: str, within: int, user: pwd.struct_passwd) -> None:
    """The directory that is there; only an empty one of root's changes its owner."""
    try:
        status = os.stat(name, dir_fd=within, follow_symlinks=False)
    except OSError:
        # root and Slurm's user may not make it: the next step says so
        return
    if not stat.S_ISDIR(status.st_mode):
        raise NotSharedError(
            f"{path} is {'a link' if stat.S_ISLNK(status.st_mode) else 'not a directory'}",
            "look who made it; remove it, then deploy again",
        )
    if status.st_uid == 0:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
        try:
            if os.listdir(handle):
                raise NotSharedError(
                    f"{path} has files, and belongs to root",
                    f"if that is Slurm's state: chown -R {SLURM} it; else move it away, then deploy again",
                )
            if os.fstat(handle).st_uid == 0:
                os.fchown(handle, user.pw_uid, user.pw_gid)
                os.fchmod(handle, 0o700)
        finally:
            os.close(handle)
    elif status.st_uid != user.pw_uid or status.st_mode & 0o022:
        raise NotSharedError(
            f"{path} is {_owner_and_mode(status)}: others than {SLURM} may write there",
            f"look who made it; move it away, or chown {SLURM} and chmod 700 it, then deploy again",
        )


def _path(directory: str, host: str) -> str:
    return os.path.join(directory, LENT + host)


def _put(path: str, word: str) -> None:
    """Through the calls by which slurmctld saves: write, sync, rename."""
    new = path + ".new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(word)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(new, path)


def _get(directory: str, host: str) -> str:
    try:
        handle = os.open(_path(directory, host), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, encoding="ascii") as stream:
            return stream.read(64)
    except (OSError, ValueError):
        return ""

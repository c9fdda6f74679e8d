"""Query one file system; runs in its own process, as any call here may hang."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Callable

from ..._shared import command, mount_table
from . import members, texts
from .rows import PROJECT, USER, WHOLE, Amount, FileSystem, Person, Project, Row, Usage

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/opt/beegfs/sbin"
# what a value of one of Ceph's is read by; tests have their own
Xattr = Callable[[str, str], bytes]


class UnansweredError(Exception):
    """There is no answer; the message has the reason."""


def ask(where: FileSystem, person: Person) -> list[Row]:
    """The rows of one file system."""
    rows = []
    with contextlib.suppress(OSError):
        # mounts what is mounted at first use, as stat(), quota and getxattr() do not
        os.statvfs(where.path)
    if where.mounted and not is_mounted(where.path):
        return [Row(where.name, where.path, USER, person.name, problem="it is not mounted here")]
    if where.quota != PROJECT:
        rows.append(_row(where, where.path, USER, person.name, lambda: _of_user(where, person)))
        if not rows[0].source and not rows[0].problem:
            rows = members.totals(where, person)
            rows.append(_row(where, where.path, WHOLE, "all users", lambda: _whole(where.path)))
    mine = [project for project in where.projects if _is_mine(project, person)]
    rows += [_row(where, each.path, PROJECT, each.name, partial(_of_project, where, each)) for each in mine]
    if where.quota == PROJECT and not mine:
        rows.append(_row(where, where.path, WHOLE, "all users", lambda: _whole(where.path)))
    return rows


@dataclass(frozen=True)
class Answer:
    """A usage and its source; '' without a quota."""

    source: str = ""
    usage: Usage = field(default_factory=Usage)


def _row(where: FileSystem, path: str, kind: str, who: str, asked: Callable[[], Answer]) -> Row:
    try:
        answer = asked()
    except UnansweredError as error:
        return Row(where.name, path, kind, who, problem=str(error))
    except texts.UnreadableError as error:
        return Row(where.name, path, kind, who, problem=f"an answer that can't be read, {error}")
    except OSError as error:
        return Row(where.name, path, kind, who, problem=str(error.strerror))
    return Row(where.name, path, kind, who, answer.source, answer.usage)


def _is_mine(project: Project, person: Person) -> bool:
    if person.is_self and person.uid == 0:
        return True
    try:
        status = os.stat(project.path)
    except PermissionError:
        return False
    except OSError:
        # the query will report the error
        return True
    return status.st_uid == person.uid or status.st_gid in person.groups


def _of_user(where: FileSystem, person: Person) -> Answer:
    if where.type == "lustre":
        return Answer("lfs quota", _lfs(["-u", person.name], where.path))
    if where.type == "beegfs":
        return _beegfs(where, person)
    if where.type == "cephfs":
        return _ceph(_own_directory(where.path, person.name), os.getxattr)
    if where.quota == USER or where.type == "nfs":
        return _quota(where, person)
    return Answer()


def _of_project(where: FileSystem, project: Project) -> Answer:
    if where.type == "lustre":
        number = next(iter(_run(["lfs", "project", "-d", project.path]).split()), "0")
        if number == "0":
            # that of all files without a project
            raise UnansweredError("no quota is set on it")
        return Answer("lfs quota", _lfs(["-p", number], where.path))
    if where.type == "cephfs":
        return _ceph(project.path, os.getxattr)
    return _statvfs_project(project.path, where.path)


def _run(argv: list[str]) -> str:
    """What a tool prints where it succeeds."""
    result = _try(argv)
    if not result.ok:
        raise UnansweredError(result.failure)
    return result.output


def _try(argv: list[str]) -> command.Result:
    # the process that asks has a time limit, and ends with the tool
    return command.run(argv, env={"PATH": _PATH, "LC_ALL": "C.UTF-8"})


def _quota(where: FileSystem, person: Person) -> Answer:
    """Local, and on a server by its rpc.rquotad. Its exit status is also 1 if a user is over a limit."""
    if where.quota != USER and shutil.which("quota", path=_PATH) is None:
        return Answer()
    point = whole_mount(where.path) if where.type == "local" else where.path
    argv = ["quota", "--user", "--no-wrap", "--raw-grace", "--filesystem=" + point]
    result = _try([*argv, *([] if person.is_self else [person.name])])
    usage = texts.read_quota(result.output)
    if usage is None and where.quota == USER:
        raise UnansweredError(f"no answer about quotas ({' '.join(result.message.split()) or 'quota prints nothing'})")
    return Answer() if usage is None else Answer("quota", usage)


def whole_mount(path: str, table: str = mount_table.TABLE) -> str:
    """Mount point of a directory's whole file system: `quota` does not know bind mounts."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    whole = [each.path for each in mount_table.read(table) if each.device == number and each.root == "/"]
    return whole[0] if whole else path


def is_mounted(path: str, table: str = mount_table.TABLE) -> bool:
    """Whether a path is mounted, apart from its automount."""
    return any(each.path == path and each.type != mount_table.AUTOFS for each in mount_table.read(table))


def _lfs(whose: list[str], path: str) -> Usage:
    return texts.read_lfs(_run(["lfs", "quota", "-q", *whose, path]), int(time.time()))


def _beegfs(where: FileSystem, person: Person) -> Answer:
    """The command line tool of BeeGFS 8, or that of 7."""
    if shutil.which("beegfs", path=_PATH):
        who = "current" if person.is_self else str(person.uid)
        argv = ["beegfs", "quota", "list-usage", "--uids", who, "--raw", "--output", "ndjson"]
        return Answer("beegfs quota", texts.read_beegfs(_run(argv)))
    # not --mount: with that, 7.4.7 takes options of its own for names of users (github.com/ThinkParQ/beegfs/issues/97)
    conf = f"--cfgFile=/etc/beegfs/beegfs-client-{where.name}.conf"
    argv = ["beegfs-ctl", "--getquota", "--csv", "--uid", person.name, conf]
    return Answer("beegfs-ctl", texts.read_beegfs_ctl(_run(argv)))


def _own_directory(path: str, name: str) -> str:
    own = os.path.join(path, name)
    return own if os.path.isdir(own) else path


def _ceph(path: str, xattr: Xattr) -> Answer:
    """CephFS has quotas on directories: usage and limits of the nearest parent directory with limits."""
    attributes: dict[str, int] = {}
    for key in ("dir.rbytes", "dir.rfiles"):
        attributes[key] = _xattr(path, key, xattr) or 0
    for directory in _upwards(path):
        for key in ("quota.max_bytes", "quota.max_files"):
            attributes.setdefault(key, 0)
            attributes[key] = _xattr(directory, key, xattr) or 0
        if attributes["quota.max_bytes"] or attributes["quota.max_files"]:
            if directory != path:
                attributes["dir.rbytes"] = _xattr(directory, "dir.rbytes", xattr) or 0
                attributes["dir.rfiles"] = _xattr(directory, "dir.rfiles", xattr) or 0
            break
    space = Amount(attributes["dir.rbytes"], None, attributes["quota.max_bytes"] or None)
    return Answer("ceph", Usage(space, Amount(attributes["dir.rfiles"], None, attributes["quota.max_files"] or None)))


def _upwards(path: str) -> Iterator[str]:
    """A directory, and those above it on the same file system."""
    device = os.stat(path).st_dev
    while os.stat(path).st_dev == device:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)


def _xattr(path: str, key: str, xattr: Xattr) -> int | None:
    try:
        value = xattr(path, "ceph." + key)
    except OSError:
        # a directory without a quota has no such attribute
        return None
    return int(value) if value.isdigit() else None


def _statvfs_project(path: str, mount: str) -> Answer:
    """XFS and ext4 answer `df` in a directory of a project by the project's quota, over NFS as well.

    quotactl is only for root. Without a limit the answer is that of the whole file system.
    """
    own, whole = os.statvfs(path), os.statvfs(mount)
    if (own.f_blocks, own.f_files) == (whole.f_blocks, whole.f_files):
        raise UnansweredError("no quota is set on it")
    return Answer("df", _from_statvfs(own))


def _whole(path: str) -> Answer:
    return Answer("df", _from_statvfs(os.statvfs(path)))


def _from_statvfs(statistics: os.statvfs_result) -> Usage:
    space = Amount(
        (statistics.f_blocks - statistics.f_bfree) * statistics.f_frsize,
        None,
        statistics.f_blocks * statistics.f_frsize or None,
    )
    # file systems with dynamic inodes report 0
    files = (
        Amount(statistics.f_files - statistics.f_ffree, None, statistics.f_files) if statistics.f_files else Amount()
    )
    return Usage(space, files)

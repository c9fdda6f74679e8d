"""A user's own files, as the user: list, look, read, make, rename, remove.

What users own can be renamed, or replaced by a link, between any two calls. So a place is walked one name after another
in open directories, and no link is followed: where one leads is reported as a place, which is walked the same way.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from .offer import RefusedError

Names = Sequence[str]
# of one page; of one directory; and of those in order of size or time, for which each file is asked
PAGE, MOST_NAMES, MOST_SORTED = 200, 200_000, 2000
READ_S = 10.0
PREVIEW, MOST_IMAGE = 1 << 16, 8 << 20
DEEPEST = 128
ORDERS = ("name", "size", "time")
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_NO_REPLACE = 1
_KINDS = {
    stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device",
}  # fmt: skip
_WORDS = {
    errno.ENOENT: "is not there",
    errno.EACCES: "you have no permission",
    errno.EPERM: "you have no permission",
    errno.EEXIST: "is already there: nothing was changed",
    errno.ENOTEMPTY: "is not empty: delete what is in it first",
    errno.EDQUOT: "your quota is used up, and nothing was stored: delete files, or ask your administrators for more",
    errno.ENOSPC: "the file system is full, and nothing was stored: tell your administrators",
    errno.EROFS: "the file system is read-only here",
    errno.ELOOP: "is a link: links are not followed here",
    errno.ENOTDIR: "is not a directory, or is a link to one",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EFBIG: "is larger than the file system takes",
    errno.ESTALE: "has changed on the file server: load the page again",
    errno.EBUSY: "something is mounted there",
}


class MissingError(RefusedError):
    """It is not there."""


@dataclass(frozen=True)
class Root:
    """Where users begin: its name in addresses, its name for people, and its path."""

    key: str
    label: str
    path: str


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """The system's errors as RefusedError, with the name first."""
    try:
        yield
    except OSError as error:
        text = _WORDS.get(error.errno or 0) or error.strerror or type(error).__name__
        kind = MissingError if error.errno == errno.ENOENT else RefusedError
        raise kind(f"{name}: {text}") from error


def roots(user: str, home: str, groups: Names, spaces: Sequence[dict[str, str]]) -> list[Root]:
    """The home, and of the site's spaces the directories that are the user's, or root's for a group of the user's."""
    known = [Root("home", "Home", home)]
    for space in spaces:
        if space["name"] != "home":
            by_user = space["by"] == "user"
            for name in [user] if by_user else sorted(groups):
                path, title = os.path.join(space["path"], name), space["name"].capitalize()
                if _is_for(path, by_user=by_user):
                    key = space["name"] + ("" if by_user else ":" + name)
                    known.append(Root(key, title if by_user else f"{title} of {name}", path))
    return known


def _is_for(path: str, *, by_user: bool) -> bool:
    """Not what another user made at that name."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    is_own = status.st_uid == os.getuid() if by_user else status.st_uid == 0 and status.st_gid in os.getgroups()
    return stat.S_ISDIR(status.st_mode) and is_own


@contextmanager
def directory(root: Root, names: Names) -> Iterator[int]:
    """The directory of this place, opened for walking. Raises RefusedError."""
    _check(names)
    with in_words(root.label):
        # a home may be a link of its administrator's
        handle = os.open(root.path, _WALK if root.key != "home" else _WALK & ~os.O_NOFOLLOW)
    try:
        for name in names:
            with in_words(name):
                inner = os.open(name, _WALK, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _check(names: Names) -> None:
    if len(names) > DEEPEST or any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names):
        raise MissingError("there is no such place")


@contextmanager
def parent_of(root: Root, names: Names) -> Iterator[tuple[int, str]]:
    """The directory that a place is in, and its name there; a root is in none. Raises RefusedError."""
    if not names:
        raise RefusedError("that is a whole directory of yours, not something in one")
    _check(names)
    with directory(root, names[:-1]) as handle:
        yield handle, names[-1]


def inspect(known: Sequence[Root], root: Root, names: Names, wanted: dict[str, Any]) -> dict[str, Any]:
    """What is at a place: a directory with one page of its entries, or a file with how it begins, or a link."""
    if not names:
        with directory(root, names) as handle:
            return {"kind": "directory", **_listed(handle, root.label, wanted)}
    with parent_of(root, names) as (parent, name):
        with in_words(name):
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind = _kind(status)
        shown = {"kind": kind, "size": status.st_size, "time": int(status.st_mtime)}
        if kind == "link":
            with in_words(name):
                return {**shown, "target": os.readlink(name, dir_fd=parent), "leads": leads(known, root, names)}
        if kind == "file":
            return {**shown, "preview": _preview(parent, name)}
        if kind != "directory":
            return shown
    with directory(root, names) as handle:
        return {**shown, **_listed(handle, name, wanted)}


def leads(known: Sequence[Root], root: Root, names: Names) -> list[str] | None:
    """The place that a link leads to: root and names; None where that is in none of the user's."""
    try:
        target = os.path.realpath(os.path.join(root.path, *names), strict=True)
    except OSError:
        return None
    # the longest first: scratch may be within the home
    for each in sorted(known, key=lambda one: -len(one.path)):
        base = os.path.realpath(each.path)
        if target == base or target.startswith(base.rstrip("/") + "/"):
            return [each.key, *filter(None, target[len(base) :].split("/"))]
    return None


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "device")


def _listed(handle: int, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """One page of a directory, directories first. Only what is shown is asked for size and time, unless all are few."""
    find, order = str(wanted.get("find", "")).casefold(), str(wanted.get("order", "name"))
    with in_words(name):
        reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
        try:
            names, hidden, more = _names(reading, find, every=bool(wanted.get("all")))
        finally:
            os.close(reading)
        room = os.statvfs(handle)
    is_sorted = order in ORDERS[1:] and len(names) <= MOST_SORTED
    entries = [_entry(handle, each) for _, each in names] if is_sorted else []
    if is_sorted:
        entries.sort(key=lambda each: (each[order], each["name"]), reverse=True)
    count = len(names)
    pages = max(1, -(-count // PAGE))
    page = min(max(1, int(wanted.get("page", 1))), pages)
    part = slice((page - 1) * PAGE, page * PAGE)
    return {
        "entries": entries[part] if is_sorted else [_entry(handle, each) for _, each in names[part]],
        "count": count, "hidden": hidden, "more": more, "page": page, "pages": pages,
        "order": order if is_sorted else "name", "can_sort": count <= MOST_SORTED,
        "free": room.f_bavail * room.f_frsize,
        "writable": os.access(".", os.W_OK | os.X_OK, dir_fd=handle),
    }  # fmt: skip


def _names(reading: int, find: str, *, every: bool) -> tuple[list[tuple[bool, str]], int, bool]:
    """All names in order, those of directories first; how many are not shown, and whether not all were read."""
    names: list[tuple[bool, str]] = []
    hidden, until, more = 0, time.monotonic() + READ_S, False
    with os.scandir(reading) as entries:
        for each in entries:
            if find and find not in each.name.casefold():
                continue
            if each.name.startswith(".") and not every:
                hidden += 1
                continue
            more = len(names) >= MOST_NAMES or time.monotonic() > until
            if more:
                break
            names.append((not each.is_dir(follow_symlinks=False), each.name))
    return sorted(names), hidden, more


def _entry(handle: int, name: str) -> dict[str, Any]:
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except OSError:
        return {"name": name, "kind": "gone", "size": 0, "time": 0}
    entry = {"name": name, "kind": _kind(status), "size": status.st_size, "time": int(status.st_mtime)}
    if entry["kind"] == "link":
        with suppress(OSError):
            entry["target"] = os.readlink(name, dir_fd=handle)[:200]
    return entry


@contextmanager
def reading(parent: int, name: str) -> Iterator[tuple[int, os.stat_result]]:
    """A regular file, opened: nothing waits for the other end of a pipe, and no device is touched."""
    with in_words(name):
        if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise RefusedError(f"{name}: is not a file that can be read here")
        handle = os.open(name, _READ, dir_fd=parent)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{name}: is not a file that can be read here")
        yield handle, status
    finally:
        os.close(handle)


def _preview(parent: int, name: str) -> dict[str, Any]:
    """How a file begins, as text; `image` for one that browsers show; `closed` where the user may not read it."""
    try:
        with reading(parent, name) as (handle, status), in_words(name):
            data = os.read(handle, PREVIEW)
            if image_type(data) and status.st_size <= MOST_IMAGE:
                return {"as": "image"}
            if b"\0" in data:
                return {"as": "binary"}
            # what ends in the middle of a letter
            text = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode(data, final=False)
            return {"as": "text", "text": text, "cut": status.st_size > len(data)}
    except RefusedError as error:
        return {"as": "closed", "reason": str(error)}


def image_type(data: bytes) -> str:
    """Of what a file begins with, whatever its name says; '' for all that browsers are not shown."""
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")


def new_name(name: str) -> str:
    """A name that a file may get here. Raises RefusedError."""
    if name in ("", ".", "..") or "/" in name or len(os.fsencode(name)) > 255:
        raise RefusedError("that is not a name: it is empty, too long, or has a slash")
    if not name.isprintable():
        raise RefusedError("a name with control characters is not given here: choose another")
    return name


def make(root: Root, names: Names, name: str) -> None:
    """A new directory."""
    with directory(root, names) as handle, in_words(name):
        os.mkdir(new_name(name), 0o777, dir_fd=handle)


def rename(root: Root, names: Names, name: str) -> None:
    """Another name in the same directory, where nothing has it."""
    with parent_of(root, names) as (parent, old), in_words(old):
        try:
            _rename(old, new_name(name), parent)
        except FileExistsError as error:
            raise RefusedError(f"{name}: {_WORDS[errno.EEXIST]}") from error


def _rename(old: str, new: str, parent: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(parent, os.fsencode(old), parent, os.fsencode(new), _NO_REPLACE) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(number, os.strerror(number))
    # NFS can't: between the two calls only who may write in this directory could make that name
    if _is_there(new, parent):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(old, new, src_dir_fd=parent, dst_dir_fd=parent)


def _is_there(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def remove(root: Root, names: Names) -> None:
    """One file, one link, or one empty directory."""
    with parent_of(root, names) as (parent, name), in_words(name):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)

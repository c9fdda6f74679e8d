"""Files and directories with owner and mode: compare, write atomically, keep a diff."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command as node_command,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.atomic_file import discard, prepare, put_in_place

# how managed files begin, and the whole first line of most
MANAGED = b"# Written by deepopsctl"
_OVERWRITTEN = "; the next deploy overwrites changes made here.\n"
HEADER = MANAGED.decode() + _OVERWRITTEN
HEADER_FROM_CLUSTER = MANAGED.decode() + " from cluster.yml" + _OVERWRITTEN
# of the managed block in a file that others own
MARKER = "deepopsctl"
# as the kernel has it
MOST_LINKS = 40


class FileRefusedError(Exception):
    """A parser refused the new content; the old file is still in place."""


def owner_ids(owner: str, group: str) -> tuple[int, int] | None:
    """(uid, gid), or None while a package has not created the account yet."""
    try:
        return pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def read(path: str) -> bytes | None:
    """Content of a file, or None when it is not there."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def text(path: str) -> str:
    """A small file's text without the blanks around it; '' where it can't be read."""
    return (read(path) or b"").decode(errors="replace").strip()


def differs(path: str, content: bytes, ids: tuple[int, int] | None, mode: int) -> list[str]:
    """What is not as desired: any of 'content', 'owner', 'mode'. `content` None leaves the content alone."""
    current = read(path) if content is not None else None
    differences = []
    if content is not None and current != content:
        differences.append("content")
    try:
        status = os.stat(path)
    except OSError:
        return ["content"]
    if ids is not None and (status.st_uid, status.st_gid) != ids:
        differences.append("owner")
    if status.st_mode & 0o7777 != mode:
        differences.append("mode")
    return differences


def ensure(noted: node_changes.Noted, path: str, content: bytes, mode: int = 0o644, secret: bool = False) -> list[str]:
    """Make a file of root's what it should be, and note it, a secret's without a word of it; what of it was not so."""
    ids = owner_ids("root", "root")
    differences = differs(path, content, ids, mode)
    if "content" in differences and secret:
        noted.wrote_secret(path, read(path))
    elif "content" in differences:
        noted.wrote(path, read(path), content)
    elif differences:
        noted.did("file", path, "mode", detail=f"root:root {mode:04o}")
    if differences and not noted.dry:
        write(path, content, ids, mode, [])
    return differences


def remove(noted: node_changes.Noted, path: str) -> bool:
    """Remove a file, and note it; False where there is none."""
    if not os.path.lexists(path):
        return False
    noted.did("file", path, "remove")
    if not noted.dry:
        os.unlink(path)
    return True


def write(path: str, content: bytes, ids: tuple[int, int] | None, mode: int, validate: Sequence[str]) -> None:
    """Replace a file in one rename; `validate` is an argv whose %s is the new file. Raises FileRefusedError."""
    temporary = prepare(path, content, ids, mode)
    try:
        if validate:
            _validate(path, temporary, validate)
        put_in_place(temporary, path)
    except BaseException:
        discard(temporary)
        raise


def error_text(error: OSError) -> tuple[str, str]:
    """(message, hint) of an OSError met while something was written."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}{error.strerror}", "make room there (`df -h` and `df -i` show where), then deploy again"
    if error.errno == errno.EROFS:
        return f"{where}{error.strerror}", "the kernel log (`dmesg`) says why it is read-only; then deploy again"
    return f"{where}{error.strerror or error}", "see the space and the mount options of that file system"


def _validate(path: str, temporary: str, command: Sequence[str]) -> None:
    result = node_command.run_merged([word.replace("%s", temporary) for word in command])
    if not result.ok:
        raise FileRefusedError(f"{path}: the new content is not valid: {result.message[-600:]}")


def set_owner_and_mode(path: str, ids: tuple[int, int] | None, mode: int) -> None:
    """Owner and mode without touching the content, of what no link of a user's leads to."""
    _set_and_close(open_own(path, os.O_RDONLY | os.O_NONBLOCK), ids, mode)


def make_directory(path: str, ids: tuple[int, int] | None, mode: int) -> None:
    """A directory with this owner and mode, made where it is missing; never by way of a link of a user's."""
    _set_and_close(open_own(path, os.O_RDONLY | os.O_DIRECTORY, make=True), ids, mode)


def _set_and_close(handle: int, ids: tuple[int, int] | None, mode: int) -> None:
    try:
        if ids is not None:
            os.fchown(handle, ids[0], ids[1])
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def open_own(path: str, flags: int, make: bool = False) -> int:
    """A handle of what is at a path: links are root's, and none that is put there meanwhile is followed.

    Root must not go where a user points. With `make`, directories that are missing are made.
    """
    done: list[str] = []
    left, links = _parts(path), 0
    handle = os.open("/", os.O_PATH | os.O_CLOEXEC)
    while left:
        part = left.pop(0)
        before = handle
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=before)
            status = os.stat(part, dir_fd=before, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                here = "/" + "/".join([*done, part])
                check_link(here, status.st_uid, links)
                target = os.path.join(os.path.dirname(here), os.readlink(part, dir_fd=before))
                done, left, part = [], _parts(os.path.normpath(target)) + left, "/"
            else:
                done.append(part)
            how = os.O_PATH | os.O_DIRECTORY if left or part == "/" else flags
            handle = os.open(part, how | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=before)
        finally:
            os.close(before)
    return handle


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def check_link(path: str, owner: int, links: int) -> None:
    """Raises OSError for a link that is not root's, and after too many."""
    if owner != 0 or links > MOST_LINKS:
        raise OSError(errno.ELOOP, "is a link of a user's" if owner else "is one link too many", path)


def users_link(path: str) -> str:
    """The first part of a path that is a link, and not root's: root must not go where a user points. '' for none."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts) + 1):
        part = "/" + "/".join(parts[:count])
        if os.path.islink(part) and os.lstat(part).st_uid != 0:
            return part
    return ""


def with_block(current: bytes | None, block: str, marker: str) -> bytes:
    """A text with the managed block put in, or replaced where it stands."""
    # only at line feeds: whatever else is in the other lines stays as it is
    lines = (current or b"").decode("utf-8", "surrogateescape").split("\n")
    if not lines[-1]:
        lines.pop()
    # first, so that our lines win over a 127.0.1.1 that an installer left for the node's own name
    first, last = _block_in(lines, marker) or (0, 0)
    lines[first:last] = [f"# BEGIN {marker}"] + block.splitlines() + [f"# END {marker}"]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def without_block(current: bytes, marker: str) -> bytes:
    """A text without the managed block; as it is where it has none."""
    lines = current.decode("utf-8", "surrogateescape").split("\n")
    first, last = _block_in(lines, marker) or (0, 0)
    return "\n".join(lines[:first] + lines[last:]).encode("utf-8", "surrogateescape")


def _block_in(lines: Sequence[str], marker: str) -> tuple[int, int] | None:
    """Where the first whole block begins, and what comes after it; None without one."""
    begin, end = f"# BEGIN {marker}", f"# END {marker}"
    if begin not in lines or end not in lines[lines.index(begin) :]:
        return None
    first = lines.index(begin)
    return first, lines.index(end, first) + 1


def remove_block(noted: node_changes.Noted, path: str, marker: str) -> None:
    """Take the managed block out of a file, and note it; the rest of the file stays as it is."""
    before = read(path)
    after = without_block(before or b"", marker)
    if before is None or after == before:
        return
    noted.wrote(path, before, after)
    if not noted.dry:
        status = os.stat(path)
        write(path, after, (status.st_uid, status.st_gid), status.st_mode & 0o7777, [])

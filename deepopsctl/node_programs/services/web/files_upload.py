"""Files that a browser sends: its form is read piece by piece, and each file has its name once it is whole."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress

from ..._shared.values import format_size
from .files import Names, Root, directory, in_words, new_name
from .offer import RefusedError

Read = Callable[[int], bytes]
BLOCK = 1 << 16
# a file server says by then that a quota is used up, and what is left to write at the end takes no minutes
SYNC = 1 << 28
MOST_FILES, MOST_HEAD, MOST_FIELD = 1000, 8192, 1024
PART = ".deepops-upload-"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=?-]{1,70}")
_FIELD = re.compile(rb'[;\s]name="([^"]*)"')
_FILE = re.compile(rb'[;\s]filename="([^"]*)"')
# what browsers write for the three characters that would end a name
_SPELLED = {b"%22": b'"', b"%0D": b"\r", b"%0A": b"\n"}


class CutError(Exception):
    """The browser, or JupyterHub, is gone before the end."""


class Form:
    """The parts of a form, in their order. `read` returns b'' at the end, and wherever it is cut off."""

    def __init__(self, read: Read, boundary: str) -> None:
        if not _BOUNDARY.fullmatch(boundary):
            raise RefusedError("that is not a form with files")
        self._read = read
        self._end = b"\r\n--" + boundary.encode()
        # the first boundary stands at the beginning of a line, too
        self._held = b"\r\n"

    def parts(self) -> Iterator[tuple[str, str | None, Iterator[bytes]]]:
        """The field's name, the file's name or None, and its content, which has to be read before the next one."""
        for _ in self._until_end():
            pass
        for _ in range(MOST_FILES):
            if self._line() == b"--":
                return
            head = self._head()
            field, file = _FIELD.search(head), _FILE.search(head)
            content = self._until_end()
            yield (field[1].decode("utf-8", "replace") if field else ""), (_name(file[1]) if file else None), content
            for _ in content:
                pass
        raise RefusedError(f"these are more than {MOST_FILES} files: send them as an archive")

    def _more(self) -> None:
        data = self._read(BLOCK)
        if not data:
            raise CutError
        self._held += data

    def _line(self) -> bytes:
        """The rest of a boundary's line: `--` after the last one."""
        while len(self._held) < 2:
            self._more()
        line, self._held = self._held[:2], self._held[2:]
        return line

    def _head(self) -> bytes:
        while b"\r\n\r\n" not in self._held:
            if len(self._held) > MOST_HEAD:
                raise RefusedError("that is not a form with files")
            self._more()
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        return b";" + head

    def _until_end(self) -> Iterator[bytes]:
        """What comes before the next boundary."""
        keep = len(self._end) - 1
        while True:
            at = self._held.find(self._end)
            if at >= 0:
                data, self._held = self._held[:at], self._held[at + len(self._end) :]
                if data:
                    yield data
                return
            if len(self._held) > keep:
                data, self._held = self._held[:-keep], self._held[-keep:]
                yield data
            self._more()


def _name(sent: bytes) -> str:
    for spelled, letter in _SPELLED.items():
        sent = sent.replace(spelled, letter)
    # of a whole directory that is sent only the last name counts
    return os.fsdecode(sent.rpartition(b"/")[2])


def store(root: Root, names: Names, form: Form, length: int, stored: list[str]) -> None:
    """Store all files of a form; names of those that are whole come into `stored`. Raises RefusedError, CutError."""
    replace = False
    with directory(root, names) as handle:
        room = os.statvfs(handle)
        free = room.f_bavail * room.f_frsize
        if length > free:
            raise RefusedError(f"this is {format_size(length)}, and the file system has {format_size(free)} free")
        for field, name, content in form.parts():
            if name:
                _store(handle, new_name(name), content, replace=replace)
                stored.append(name)
            elif name is None and field == "replace":
                replace = _text(content) == b"1"


def _text(content: Iterator[bytes]) -> bytes:
    text = b""
    for data in content:
        text += data
        if len(text) > MOST_FIELD:
            raise RefusedError("that is not a form of this page")
    return text


def _store(handle: int, name: str, content: Iterator[bytes], *, replace: bool) -> None:
    """One file, under another name until it is whole."""
    part = PART + secrets.token_hex(8)
    with in_words(name):
        mode = _mode_before(handle, name, replace=replace)
        target = os.open(part, _NEW, 0o666, dir_fd=handle)
        try:
            with os.fdopen(target, "wb", buffering=0):
                if mode is not None:
                    os.fchmod(target, mode)
                since = 0
                for data in content:
                    _write(target, data)
                    since += len(data)
                    if since >= SYNC:
                        os.fdatasync(target)
                        since = 0
                # a file server may say only here that there is no room
                os.fsync(target)
            if mode is None:
                # fails where the name is there by now
                os.link(part, name, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
            else:
                os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=handle)


def _mode_before(handle: int, name: str, *, replace: bool) -> int | None:
    """The rights of the file that will be replaced; None where there is none. Nothing else is ever replaced."""
    try:
        before = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not replace:
        raise FileExistsError(errno.EEXIST, "exists")
    if not stat.S_ISREG(before.st_mode):
        raise RefusedError(f"{name}: is there, and is not a file: it is not replaced")
    return before.st_mode & 0o777


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]

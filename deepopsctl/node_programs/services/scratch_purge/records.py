"""Lists of files on disk, a record each: nothing that grows with the tree is held in memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

FILE, LINK, DIRECTORY = b"f", b"l", b"d"
_FORMATS = {FILE: stat.S_IFREG, LINK: stat.S_IFLNK, DIRECTORY: stat.S_IFDIR}
_CHUNK = 1 << 16
# longest path shown in a list; users can create paths of megabytes
_LONGEST = 1000
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%^")


@dataclass(frozen=True)
class Record:
    """A file, link or directory; `path` is relative to the root, `used` is when it was last used."""

    file_type: bytes
    path: bytes
    used: int
    inode: int
    size: int
    uid: int
    names: int

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The names of the path."""
        return tuple(self.path.split(b"/"))

    @property
    def format(self) -> int:
        """The file type bits of stat."""
        return _FORMATS[self.file_type]

    @property
    def frees(self) -> int:
        """Bytes that deleting it frees; none while another hard link exists."""
        return self.size if self.names == 1 else 0


class Writer:
    """Appends records; each has only the part of its path that differs from the one before.

    So a list is never larger than all names of the tree together, however deep they are.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._before: Sequence[bytes] = ()

    def write(self, record: Record) -> None:
        """Append one; a name has every byte but NUL and slash, so NUL ends it."""
        parts = record.parts
        shared = shared_parts(self._before, parts[:-1])
        self._before = parts
        numbers = (record.used, record.inode, record.size, record.uid, record.names, shared)
        fields = b" ".join(b"%d" % number for number in numbers)
        self._stream.write(b"%s %s %s\0" % (record.file_type, fields, b"/".join(parts[shared:])))


def shared_parts(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many names two paths begin with in common."""
    shared = 0
    for name, other_name in zip(one, other):
        if name != other_name:
            break
        shared += 1
    return shared


def read(stream: IO[bytes]) -> Iterator[Record]:
    """All, in the order written."""
    rest = b""
    before: Sequence[bytes] = ()
    while chunk := stream.read(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\0")
        for text in whole:
            file_type, used, inode, size, uid, names, shared, own = text.split(b" ", 7)
            before = (*before[: int(shared)], *own.split(b"/"))
            yield Record(file_type, b"/".join(before), int(used), int(inode), int(size), int(uid), int(names))


class Budget:
    """So many bytes for each user: what one of them makes leaves room for the lines of others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spent: dict[int, int] = {}

    def allows(self, uid: int, size: int) -> bool:
        """Whether so many more fit; the first that does not is the last."""
        spent = self._spent.get(uid, 0) + size
        self._spent[uid] = spent
        return spent <= self._most


def shown(path: bytes) -> str:
    """quoted(), and of a path of absurd length the beginning and the end."""
    if len(path) > _LONGEST:
        return f"{quoted(path[: _LONGEST // 2])}[...]{quoted(path[-_LONGEST // 2 :])}"
    return quoted(path)


def quoted(path: bytes) -> str:
    """A path for people and for a shell, on one line whatever is in it: a name can't forge a line of the log."""
    if path and all(byte in _PLAIN for byte in path):
        return path.decode("ascii")
    try:
        text = path.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and "'" not in text:
        return f"'{text}'"
    return f"$'{''.join(_escaped(byte) for byte in path)}'"


def _escaped(byte: int) -> str:
    if byte in b"\\'":
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def create(path: str, mode: int = 0o600) -> IO[bytes]:
    """A new file in the place of an old one."""
    if os.path.lexists(path):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "w+b")

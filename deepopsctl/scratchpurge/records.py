"""Lists of files on disk, a record each: nothing that grows with the tree is held in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Iterator, Tuple

FILE, LINK, FOLDER = b"f", b"l", b"d"
_CHUNK = 1 << 16
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%^")


@dataclass(frozen=True)
class Record:
    """One thing in the tree; `path` is relative to the root, `used` when it was last used."""

    kind: bytes
    path: bytes
    used: int
    inode: int
    size: int
    uid: int
    names: int

    @property
    def parts(self) -> Tuple[bytes, ...]:
        """The names of the path."""
        return tuple(self.path.split(b"/"))

    @property
    def frees(self) -> int:
        """Bytes that are free when it is gone; another hard link keeps them."""
        return self.size if self.names == 1 else 0


def write(stream: IO[bytes], record: Record) -> None:
    """Append one; a name has every byte but NUL and slash, so NUL ends it."""
    numbers = (record.used, record.inode, record.size, record.uid, record.names)
    stream.write(b"%s %s %s\0" % (record.kind, b" ".join(b"%d" % number for number in numbers), record.path))


def read(stream: IO[bytes]) -> Iterator[Record]:
    """All, in the order written."""
    rest = b""
    while chunk := stream.read(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\0")
        for text in whole:
            kind, used, inode, size, uid, names, path = text.split(b" ", 6)
            yield Record(kind, path, int(used), int(inode), int(size), int(uid), int(names))


def quoted(path: bytes) -> str:
    """A path for people and for a shell, on one line whatever is in it: a name can't forge a line of the log."""
    if path and all(byte in _PLAIN for byte in path):
        return path.decode("ascii")
    try:
        text = path.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and "'" not in text:
        return "'{}'".format(text)
    return "$'{}'".format("".join(_escaped(byte) for byte in path))


def _escaped(byte: int) -> str:
    if byte in b"\\'":
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else "\\{:03o}".format(byte)


def create(path: str, mode: int = 0o600) -> IO[bytes]:
    """A new file in the place of an old one."""
    if os.path.lexists(path):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "w+b")

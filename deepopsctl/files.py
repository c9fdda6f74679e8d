"""Files: written so that a reader sees the old content or the new one, never half of it; and their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file at once; a link is followed, so that it stays a link."""
    with naming(path):
        _replace(path.resolve(), text, mode)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Set this file as the filename of OSErrors in the block, instead of none (full disk) or a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _replace(target: Path, text: str, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def user_cache(environment: Mapping[str, str], name: str) -> Path:
    """Where this user keeps what can be made again."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "deepopsctl" / name


def read_file(path: Path, limit: int = -1) -> bytes:
    """The content of a file that a person names, of `limit` bytes at most.

    An OSError for a named pipe or a device, at which a reader waits for ever. That of a shell's `<(command)` is fine.
    """
    with naming(path):
        # without waiting for a process that writes
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            mode = os.fstat(handle).st_mode
            of_a_shell = stat.S_ISFIFO(mode) and str(Path(f"/proc/self/fd/{handle}").readlink()).startswith("pipe:")
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not (stat.S_ISREG(mode) or of_a_shell):
                raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
            os.set_blocking(handle, True)
            return stream.read(limit)


def read_text(path: Path, errors: str = "strict") -> str:
    """The same as text in UTF-8, with one type of line end."""
    return read_file(path).decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def sha256_of(path: Path) -> str:
    """The SHA-256 checksum of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

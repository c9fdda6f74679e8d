"""Replace a file at once: its reader sees the old content or the new one, and nothing is left of a failure."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from typing import Union

PathName = Union[str, "os.PathLike[str]"]


def write(path: PathName, content: str | bytes, mode: int = 0o644) -> None:
    """Not synced: for a file that is written again every few seconds, or may be lost with the power."""
    put_in_place(_create(path, content, mode, None, sync=False), path)


def write_synced(path: PathName, content: str | bytes, mode: int = 0o644) -> None:
    """A power cut leaves the old content or the new one as well."""
    put_in_place(prepare(path, content, None, mode), path)


def prepare(path: PathName, content: str | bytes, ids: tuple[int, int] | None, mode: int) -> str:
    """Write the complete new file next to the old one and sync it; returns its name. An OSError names `path`."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return _create(path, content, mode, ids, sync=True)


def put_in_place(temporary: str, path: PathName) -> None:
    """Replace a file by the one that prepare() made."""
    try:
        os.replace(temporary, path)
    except OSError as error:
        # a file that is itself a mount (/etc/hosts in a container) can only be rewritten
        if error.errno != errno.EBUSY:
            discard(temporary)
            raise
        with open(temporary, "rb") as source, open(path, "r+b") as target:
            target.write(source.read())
            target.truncate()
        os.unlink(temporary)


def discard(path: PathName) -> None:
    """Remove what prepare() made, or any other file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _create(path: PathName, content: str | bytes, mode: int, ids: tuple[int, int] | None, *, sync: bool) -> str:
    # a hidden name without the old one's ending: directories are read for *.prom, *.conf and the like
    handle, temporary = tempfile.mkstemp(prefix=".deepopsctl-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode("utf-8") if isinstance(content, str) else content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            if ids is not None:
                os.fchown(stream.fileno(), ids[0], ids[1])
            if sync:
                os.fsync(stream.fileno())
    except OSError as error:
        discard(temporary)
        # a full disk is an error of no file in particular
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    except BaseException:
        discard(temporary)
        raise
    return temporary

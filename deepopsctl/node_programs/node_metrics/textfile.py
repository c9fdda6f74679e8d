"""A text file that node exporter shows. alertdrain and slurmmetrics link here: a program on nodes stands alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Union

PathName = Union[str, "os.PathLike[str]"]


def write(path: PathName, text: str) -> None:
    """Replace a file at once: its reader sees the old text or the new one, and nothing is left of a failure."""
    # a name without .prom: node exporter reads all that have it
    handle, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def remove(path: PathName) -> None:
    """Remove a file if it exists: stale values would look current."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)

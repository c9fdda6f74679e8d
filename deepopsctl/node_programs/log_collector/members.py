"""The current nodes of the cluster: a certificate is valid for a year, a node may be removed at any time."""

from __future__ import annotations

import os
from typing import FrozenSet, Tuple


class Members:
    """The names in a file, one per line: read again after a deploy has changed it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read: Tuple[int, ...] = ()
        self._names: FrozenSet[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a node is in the cluster; False for all without the file."""
        try:
            status = os.stat(self._path)
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._read:
                with open(self._path, encoding="utf-8") as stream:
                    self._names = frozenset(line.strip() for line in stream)
                self._read = version
        except OSError:
            return False
        return name in self._names

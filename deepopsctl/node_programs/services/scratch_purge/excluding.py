"""Patterns of what is never purged, relative to the root."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase


class Excluded:
    """`*.keep` is a name anywhere, `proj/*/data` a path from the root; a matching directory excludes all below it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._names = [pattern for pattern in patterns if "/" not in pattern.strip("/")]
        self._names = [pattern.strip("/") for pattern in self._names]
        self._paths: list[list[str]] = [
            pattern.strip("/").split("/") for pattern in patterns if "/" in pattern.strip("/")
        ]

    def matches(self, above: Sequence[bytes], name: bytes) -> bool:
        """Whether a name in the directory `above` is excluded."""
        text = os.fsdecode(name)
        if any(fnmatchcase(text, pattern) for pattern in self._names):
            return True
        if not self._paths:
            return False
        # compared by length first: a user may make thousands of levels
        same_depth = [pattern for pattern in self._paths if len(pattern) == len(above) + 1]
        parts = [os.fsdecode(part) for part in above] + [text] if same_depth else []
        return any(all(fnmatchcase(part, one) for part, one in zip(parts, pattern)) for pattern in same_depth)

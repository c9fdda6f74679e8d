"""What tools of the node print, and its small files."""

from __future__ import annotations

from collections.abc import Sequence

from ..._shared import command


def output(argv: Sequence[str], limit_s: float = 10) -> str:
    """What a command prints; '' where it is missing, fails to answer in time, or prints nothing."""
    return command.run(argv, limit_s).output


def read(path: str) -> str:
    """A small file's text without the blanks around it; '' where it can't be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""

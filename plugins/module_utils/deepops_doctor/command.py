"""Run a tool of the node with a time limit."""

from __future__ import annotations

import os
import subprocess
from typing import Sequence


def output(argv: Sequence[str], timeout: float = 10) -> str:
    """What a command prints; '' where it is missing, fails to answer in time, or prints nothing."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            errors="replace",
            timeout=timeout,
            env=dict(os.environ, LC_ALL="C.UTF-8", PATH=path),
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def read(path: str) -> str:
    """A small file's text without the blanks around it; '' where it can't be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""

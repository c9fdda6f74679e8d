"""Checks of this suite; their targets are NODE/JOB[/PAGE] for what is scraped, else a node, a file, a dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TypeVar

from ..._shared import checks

SUITE = "monitoring"
T = TypeVar("T")

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)


def place(node: str, job: str, page: str = "") -> str:
    """What Prometheus scrapes on a node under the name of a job; of several pages there, this one."""
    return "/".join([node, job, page] if page else [node, job])


def names(items: Iterable[object], most: int = 8) -> str:
    """Some of many names, in order."""
    listed = sorted(str(name) for name in items)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")

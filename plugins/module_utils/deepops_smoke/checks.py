"""Checks of the smoke suite."""

from __future__ import annotations

from functools import partial

from . import checkform
from .checkform import FAIL, PASS, SKIP, WARN

Check = checkform.Check
__all__ = ["FAIL", "PASS", "SKIP", "WARN", "Check", "check", "failed", "one_line", "skipped"]

SUITE = "smoke"
# one check, and one that could not be made, without the suite's name
check = partial(checkform.check, SUITE)
skipped = partial(checkform.skipped, SUITE)


def failed(name: str, target: str, message: str, measured: object = "", expected: object = "") -> Check:
    """A check that failed."""
    return check(name, target, FAIL, measured, expected, message=message)


def one_line(text: str, limit: int = 300) -> str:
    """Text of a tool as one line that fits into a report."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."

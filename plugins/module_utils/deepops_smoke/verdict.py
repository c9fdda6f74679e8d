"""Checks of the smoke suite."""

from __future__ import annotations

from functools import partial

from . import checkform
from .checkform import FAIL, PASS, SKIP, WARN

Verdict = checkform.Check
__all__ = ["FAIL", "PASS", "SKIP", "WARN", "Verdict", "failed", "one_line", "skipped", "verdict"]

SUITE = "smoke"
# one check, and one that could not be made, without the suite's name
verdict = partial(checkform.check, SUITE)
skipped = partial(checkform.skipped, SUITE)


def failed(name: str, target: str, message: str, measured: object = "", expected: object = "") -> Verdict:
    """A check that failed."""
    return verdict(name, target, FAIL, measured, expected, message=message)


def one_line(text: str, limit: int = 300) -> str:
    """Text of a tool as one line that fits into a report."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."

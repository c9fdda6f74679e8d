"""A check as a plain dict: a suite's result for a target, in the form that deepopsctl's reports read. Python 3.8."""

from __future__ import annotations

from typing import Dict

Check = Dict[str, str]

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"


def check(
    suite: str,
    name: str,
    target: str,
    status: str,
    measured: object = "",
    expected: object = "",
    unit: str = "",
    message: str = "",
) -> Check:
    """One check; measured and expected may be numbers."""
    return {
        "suite": suite,
        "name": name,
        "target": target,
        "status": status,
        "measured": str(measured),
        "expected": str(expected),
        "unit": unit,
        "message": message,
    }


def failed(
    suite: str, name: str, target: str, message: str, measured: object = "", expected: object = "", unit: str = ""
) -> Check:
    """A check that failed."""
    return check(suite, name, target, FAIL, measured, expected, unit, message)


def skipped(suite: str, name: str, target: str, reason: str) -> Check:
    """A check that could not be made, and why."""
    return check(suite, name, target, SKIP, message=reason)


def one_line(text: str, limit: int = 300) -> str:
    """Text of a tool as one line that fits into a report."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."

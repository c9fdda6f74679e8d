"""Checks as plain dicts in the form that deepopsctl's reports read."""

from __future__ import annotations

from typing import Dict

SUITE = "smoke"
Verdict = Dict[str, str]

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"


def verdict(
    name: str,
    target: str,
    status: str,
    measured: object = "",
    expected: object = "",
    unit: str = "",
    message: str = "",
) -> Verdict:
    """One check; measured and expected may be numbers."""
    return {
        "suite": SUITE,
        "name": name,
        "target": target,
        "status": status,
        "measured": str(measured),
        "expected": str(expected),
        "unit": unit,
        "message": message,
    }


def skipped(name: str, target: str, reason: str) -> Verdict:
    """A check that could not be made, and why."""
    return verdict(name, target, SKIP, message=reason)


def failed(name: str, target: str, message: str, measured: object = "", expected: object = "") -> Verdict:
    """A check that failed."""
    return verdict(name, target, FAIL, measured, expected, message=message)


def one_line(text: str, limit: int = 300) -> str:
    """Text of a tool as one line that fits into a report."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."

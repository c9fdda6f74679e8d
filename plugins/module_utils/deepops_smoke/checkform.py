"""A check as a plain dict: a suite's result for a target, in the form that deepopsctl's reports read.

Suites of jobs use it, too: deepopsctl/gpucheck/checkform.py is a link to this file, which therefore
imports nothing of its package and is written for Python 3.8.
"""

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


def skipped(suite: str, name: str, target: str, reason: str) -> Check:
    """A check that could not be made, and why."""
    return check(suite, name, target, SKIP, message=reason)

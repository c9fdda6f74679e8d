"""Checks of this suite; their targets are NODE/JOB for what Prometheus scrapes, else a node, a file, a dashboard."""

from __future__ import annotations

import time
from typing import Callable, Iterable, TypeVar

from ansible.module_utils.deepops_smoke import verdict as told
from ansible.module_utils.deepops_smoke.verdict import FAIL, PASS, SKIP, WARN, Verdict, one_line

SUITE = "monitoring"
T = TypeVar("T")
__all__ = ["FAIL", "PASS", "SKIP", "WARN", "Verdict", "check", "names", "one_line", "place", "skip", "until"]


def check(
    name: str, target: str, status: str, measured: object = "", expected: object = "", unit: str = "", message: str = ""
) -> Verdict:
    """One check."""
    return dict(told.verdict(name, target, status, measured, expected, unit, message), suite=SUITE)


def skip(name: str, target: str, reason: str) -> Verdict:
    """One that could not be made, and why."""
    return check(name, target, SKIP, message=reason)


def place(node: str, job: str) -> str:
    """What Prometheus scrapes on a node under the name of a job."""
    return "{}/{}".format(node, job)


def names(found: Iterable[object], most: int = 8) -> str:
    """Some of many names, in order."""
    listed = sorted(str(name) for name in found)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (" and {} more".format(more) if more > 0 else "")


def until(seconds: float, look: Callable[[], T], done: Callable[[T], bool], pause: float = 1.0) -> T:
    """Look again and again until it is as wanted or time is up; what was seen last."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if done(found) or time.monotonic() >= end:
            return found
        time.sleep(pause)

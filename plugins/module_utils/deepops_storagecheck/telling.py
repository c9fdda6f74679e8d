"""Checks of this suite; their targets are NODE/NAME, or NAME for what all nodes did together."""

from __future__ import annotations

from typing import Any, Mapping

from ansible.module_utils.deepops_smoke import verdict as told
from ansible.module_utils.deepops_smoke.verdict import FAIL, PASS, SKIP, WARN, Verdict, one_line

SUITE = "storage"
NOTHING = "storage-entries"
__all__ = ["FAIL", "NOTHING", "PASS", "SKIP", "WARN", "Verdict", "check", "one_line", "place", "skip", "trouble"]


def check(
    name: str, target: str, status: str, measured: object = "", expected: object = "", unit: str = "", message: str = ""
) -> Verdict:
    """One check."""
    return dict(told.verdict(name, target, status, measured, expected, unit, message), suite=SUITE)


def skip(name: str, target: str, reason: str) -> Verdict:
    """One that could not be made, and why."""
    return check(name, target, SKIP, message=reason)


def place(node: str, entry: str) -> str:
    """An entry of `storage` as one node has it."""
    return "{}/{}".format(node, entry)


def trouble(result: Mapping[str, Any]) -> str:
    """Why an act gave no result; '' where it gave one."""
    if "hung" in result:
        return "no answer within {:g} s: the file system hangs".format(float(result["hung"]))
    return one_line(str(result["error"])) if "error" in result else ""

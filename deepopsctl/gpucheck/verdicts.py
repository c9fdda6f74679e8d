"""Checks as plain dicts, in the form that `deepopsctl validate` reports."""

from __future__ import annotations

from typing import Any

SUITE = "gpu"
PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"
_ORDER = (PASS, SKIP, WARN, FAIL)


def check(
    name: str, target: str, status: str, measured: object = "", expected: object = "", unit: str = "", message: str = ""
) -> dict[str, str]:
    """One check."""
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


def worst(*statuses: str) -> str:
    """The one that counts."""
    return max(statuses, key=_ORDER.index)


def target_of(node: str, gpu: dict[str, Any]) -> str:
    """Where a GPU sits: `gpu01/3`."""
    return "{}/{}".format(node, gpu["index"])


def who(node: str, gpu: dict[str, Any]) -> str:
    """A GPU so that a person finds it: node, index, and the serial number that is printed on it."""
    card = "serial {}".format(gpu["serial"]) if gpu.get("serial") else gpu.get("uuid") or "serial unknown"
    return "{} GPU {} ({}, {})".format(node, gpu["index"], gpu.get("name") or "unknown model", card)


def status_of(checks: list[dict[str, str]]) -> str:
    """The verdict over all; skipped checks alone prove nothing."""
    statuses = {entry["status"] for entry in checks}
    for status in (FAIL, WARN, PASS):
        if status in statuses:
            return status
    return SKIP

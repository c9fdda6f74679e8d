"""Checks of GPUs: their targets, and the overall status."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..._shared import checks
from ..._shared.checks import FAIL, PASS, SKIP, WARN

SUITE = "gpu"
_ORDER = (PASS, SKIP, WARN, FAIL)
__all__ = [
    "FAIL", "PASS", "SKIP", "WARN", "check", "gave_number", "gpu_count", "is_measured", "status_of",
    "target_of", "who", "worst",
]  # fmt: skip

# one check of this suite, without its name
check = partial(checks.check, SUITE)


def worst(*statuses: str) -> str:
    """The worst status."""
    return max(statuses, key=_ORDER.index)


def target_of(node: str, gpu: dict[str, Any]) -> str:
    """Where a GPU sits: `gpu01/3`."""
    return f"{node}/{gpu['index']}"


def who(node: str, gpu: dict[str, Any]) -> str:
    """A GPU so that a person finds it: node, index, and the serial number that is printed on it."""
    card = f"serial {gpu['serial']}" if gpu.get("serial") else gpu.get("uuid") or "serial unknown"
    return f"{node} GPU {gpu['index']} ({gpu.get('name') or 'unknown model'}, {card})"


def gave_number(gpu: dict[str, Any]) -> bool:
    """Whether any test of a GPU gave a number."""
    return any(test["status"] == "measured" for test in (gpu.get("measured") or {}).values())


def is_measured(results: list[Any]) -> bool:
    """Whether any test of any GPU gave a number."""
    return any(gave_number(gpu) for result in results for gpu in result["gpus"])


def gpu_count(number: int) -> str:
    """A number of GPUs, in words."""
    return f"{number} GPUs" if number != 1 else "1 GPU"


def status_of(checks: list[dict[str, str]]) -> str:
    """The overall status; skipped checks alone are `skip`."""
    statuses = {entry["status"] for entry in checks}
    for status in (FAIL, WARN, PASS):
        if status in statuses:
            return status
    return SKIP

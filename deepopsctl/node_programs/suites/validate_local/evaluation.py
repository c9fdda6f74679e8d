"""What an executable printed, as a check: one JSON object of known keys, short texts, and nothing else of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..._shared import checks
from ..._shared.checks import FAIL, PASS, SKIP, WARN, Check, one_line

SUITE = "local"
check = partial(checks.check, SUITE)
skipped = partial(checks.skipped, SUITE)
failed = partial(checks.failed, SUITE)
KEYS = ("status", "measured", "expected", "unit", "message")
_STATUSES = (PASS, WARN, FAIL, SKIP)
_LONGEST = {"measured": 100, "expected": 100, "unit": 20, "message": 300}


def evaluate(name: str, node: str, result: Mapping[str, Any], seconds: float) -> Check:
    """The check of one executable on one node."""
    problem, answer = _answer(result, seconds)
    if problem:
        return failed(name, node, one_line(_printable(problem)))
    texts = {key: one_line(_printable(str(answer.get(key, ""))), most) for key, most in _LONGEST.items()}
    if answer["status"] == PASS and result.get("rc"):
        return check(name, node, FAIL, **{**texts, "message": f"says pass and exits {result['rc']}"})
    return check(name, node, answer["status"], **texts)


def _answer(result: Mapping[str, Any], seconds: float) -> tuple[str, dict[str, Any]]:
    """(what is wrong with it, its object)."""
    if result.get("late"):
        return f"did not end within {seconds:.0f} s", {}
    if result.get("long"):
        return "printed more than 64 KiB", {}
    try:
        answer = json.loads(str(result.get("out", "")))
    # a deeply nested text is RecursionError, a long number ValueError
    except (ValueError, RecursionError):
        return f"printed no JSON object, and exits {result.get('rc')}: {result.get('err') or result.get('out')}", {}
    if not isinstance(answer, dict):
        return "printed JSON that is not an object", {}
    if answer.get("status") not in _STATUSES:
        return f"has no status of {', '.join(_STATUSES)}", {}
    others = [key for key in answer if key not in KEYS]
    if others:
        return f"has keys besides {', '.join(KEYS)}: {', '.join(others)}", {}
    lists = [key for key in KEYS if isinstance(answer.get(key), (dict, list))]
    return (f"{', '.join(lists)} is a list or an object" if lists else ""), answer


def _printable(text: str) -> str:
    """Without what would steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text[:2000])

"""From results to checks: the one entrance to health, rates and group. Pure."""

from __future__ import annotations

from typing import Any, Iterable

from .group import group
from .health import health
from .rates import rates
from .verdicts import FAIL, SKIP, check

Result = Any  # one node's result: plain JSON


def judge(
    results: Iterable[Result], earlier: Iterable[Result] = (), *, expect_gpus: bool = False
) -> list[dict[str, str]]:
    """Every check for these nodes, compared among each other and with earlier results of the same cards.

    A node without GPUs is skipped with the reason; it fails where the caller knows that it has some (`expect_gpus`).
    """
    taken = list(results)
    found = [_no_driver(result, FAIL if expect_gpus else SKIP) for result in taken if result.get("problem")]
    found += [entry for result in taken for gpu in result["gpus"] for entry in health(result["node"], gpu)]
    found += rates(taken, list(earlier))
    found += group(taken)
    return found


def _no_driver(result: Result, status: str) -> dict[str, str]:
    return check("gpu-driver", result["node"], status, "no GPU to ask", "GPUs", message=result["problem"])

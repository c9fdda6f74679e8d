"""From results to checks: the entry point of health, rates and group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .dcgm import diagnosed
from .group import group
from .health import health
from .rates import METRICS, rates
from .results import FAIL, PASS, SKIP, check, gpu_count

Result = Any  # one node's result: plain JSON
MEASURED = (*(metric.name for metric in METRICS), "gpu-memory-test", "gpu-peers", "gpu-all-reduce")


def evaluate(
    results: Iterable[Result], earlier: Iterable[Result] = (), expected: Mapping[str, int] | None = None
) -> list[dict[str, str]]:
    """Every check for these nodes, compared among each other and with earlier results of the same cards.

    `expected` has how many GPUs a node is known to have. A node without GPUs is skipped with the reason; where some
    were expected, it fails. Simulated GPUs are skipped, whatever was expected: no measurement of theirs passes.
    """
    results_read = list(results)
    checks: list[dict[str, str]] = []
    for result in results_read:
        number = (expected or {}).get(result["node"], 0)
        if result.get("simulated"):
            checks += _simulated(result)
            continue
        if result.get("problem"):
            checks.append(_no_driver(result, FAIL if number else SKIP))
        if number:
            checks.append(_count(result, number))
        checks += diagnosed(result)
    checks += [entry for result in results_read for gpu in result["gpus"] for entry in health(result["node"], gpu)]
    past = list(earlier)
    checks += rates(results_read, past)
    checks += group(results_read, past)
    return checks


def _simulated(result: Result) -> Iterable[dict[str, str]]:
    for name in ("gpu-driver", "gpu-count", *MEASURED):
        yield check(name, result["node"], SKIP, message=result["simulated"])


def _no_driver(result: Result, status: str) -> dict[str, str]:
    return check("gpu-driver", result["node"], status, "no GPU to ask", "GPUs", message=result["problem"])


def _count(result: Result, number: int) -> dict[str, str]:
    """As many GPUs as there should be, and all of them open."""
    opened = sum(not gpu.get("error") for gpu in result["gpus"])
    status = PASS if opened == number else FAIL
    text = "" if status == PASS else f"{result['node']} should have {gpu_count(number)}, and has {opened}"
    unit = gpu_count(opened).split()[1]
    return check("gpu-count", result["node"], status, opened, number, unit, text)

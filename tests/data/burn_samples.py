"""Results of a burn-in, CONSTRUCTED manually in the shape of real ones: no GPU was at hand."""

from __future__ import annotations

from typing import Any

from tests.data.gpu_check_samples import gpu

QUIET: dict[str, int | None] = {
    "memory_corrected": 0, "memory_uncorrected": 0, "machine_checks": 0, "thermal_interrupts": 0, "throttled": 0,
    "pcie_corrected": 0, "pcie_uncorrected": 0,
}  # fmt: skip
UNKNOWN: dict[str, int | None] = dict.fromkeys(QUIET)


def rate(first: float, last: float | None = None, lowest: float | None = None) -> dict[str, Any]:
    """How a rate went."""
    last = first if last is None else last
    return {"min": lowest or min(first, last), "median": first, "first": first, "last": last}


def watched(**changes: Any) -> dict[str, Any]:
    """A GPU that nothing happened to."""
    return {
        "samples": 600, "temperature": 71, "power": 690.0, "sm_lowest": 1700, "sm_highest": 1980,
        "slowdowns": {"power cap": 0.9}, "errors": {"corrected": 0, "uncorrected": 0, "remapped": 0}, **changes,
    }  # fmt: skip


def burnt(index: int = 0, bf16: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """One GPU after its load."""
    burn = {
        "status": "measured",
        "message": "",
        "verified_mib": 9_000_000,
        "rates": {"bf16": bf16 or rate(600.0), "fp32": rate(60.0), "memory": rate(3000.0)},
        "watched": watched(),
    }
    return gpu(index, burn={**burn, **changes})


def burn_result(**changes: Any) -> dict[str, Any]:
    """A node of two cores and two GPUs after ten good minutes."""
    return {
        "schema": 1, "node": "gpu01", "when": "2026-11-22T03:00:00+00:00", "kernel": "6.12.1", "asked_s": 600.0,
        "ended": "", "ran_s": 600.0,
        "cpu": {
            "cores": 2, "rounds": 8000, "faults": [],
            "rates": [{"core": 0, **rate(10.0)}, {"core": 1, **rate(10.1)}],
        },
        "memory": {"mib": 90_000, "verified_mib": 4_000_000, "faults": []},
        "gpus": [burnt(0), burnt(1)], "versions": {"driver": "580.95.05"}, "counters": dict(QUIET),
        "cpu_temperature": 82.0, "kernel_log": {"lines": []}, **changes,
    }  # fmt: skip

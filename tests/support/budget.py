"""What a run may cost: benchmarks/budget.toml."""

from __future__ import annotations

import tomllib
from typing import Any

from tests.support.paths import ROOT

BUDGET: dict[str, Any] = tomllib.loads((ROOT / "benchmarks" / "budget.toml").read_text(encoding="utf-8"))


def cost(summary: dict[str, Any]) -> dict[str, int]:
    """Host-tasks by node."""
    return {host: counts["ok"] for host, counts in summary["hosts"].items()}

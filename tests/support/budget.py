"""What a run may cost: benchmarks/budget.toml."""

from __future__ import annotations

import os
import resource
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.paths import ROOT

BUDGET: dict[str, Any] = tomllib.loads((ROOT / "benchmarks" / "budget.toml").read_text(encoding="utf-8"))
_STARTED = Path(__file__).parent / "started"


def cost(summary: dict[str, Any]) -> dict[str, int]:
    """Host-tasks by node."""
    return {host: counts["ok"] for host, counts in summary["hosts"].items()}


@dataclass
class Here:
    """What commands cost the control machine: processes that Python started, seconds of processors."""

    processes: int = 0
    cpu_s: float = 0.0


@contextmanager
def measured(directory: Path) -> Iterator[Here]:
    """Measure the commands that are run in the block; their ends are known after it."""
    here, file = Here(), directory / "started"
    file.write_bytes(b"")
    before = _used()
    with patch.dict(os.environ, {"PYTHONPATH": str(_STARTED), "DEEPOPSCTL_TEST_STARTED": str(file)}):
        yield here
    here.processes, here.cpu_s = file.stat().st_size, _used() - before


def _used() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

"""What a report says about the validation as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from deepopsctl.checks import Check, Totals, totals


@dataclass(frozen=True, slots=True)
class Facts:
    """One validation: which cluster, when, how long (seconds), its nodes in the order of cluster.yml, its checks.

    `gpus` are the results of gpucheck, one a node (docs/reference/gpucheck.md), where GPUs were measured. `stopped`
    says why it ended before all checks were made: `interrupted`, `timeout`.
    """

    cluster: str
    suites: tuple[str, ...]
    run: str
    when: datetime
    elapsed_s: float
    nodes: tuple[str, ...]
    checks: tuple[Check, ...]
    gpus: tuple[Mapping[str, object], ...] = ()
    stopped: str = ""

    @property
    def totals(self) -> Totals:
        """Checks by outcome."""
        return totals(self.checks)

    @property
    def title(self) -> str:
        """`hpc: smoke validation`."""
        return f"{self.cluster}: {' and '.join(self.suites)} validation"

    @property
    def slurm_version(self) -> str:
        """What the checks found; '' when they could not."""
        return next((check.expected for check in self.checks if check.name == "slurm-version"), "")

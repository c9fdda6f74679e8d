"""The documented JSON object of a validation (DESIGN, section 5); stored in the run directory as checks.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from deepopsctl.checks.check import Check, Totals, totals
from deepopsctl.model.json_objects import SCHEMA, CheckEntry, ChecksObject


def entries_of(checks: Iterable[Check]) -> list[CheckEntry]:
    """The checks as JSON has them."""
    return [cast("CheckEntry", check.to_dict()) for check in checks]


def document(
    *,
    ok: bool,
    run: str,
    checks: Iterable[Check],
    command: str = "validate",
    gpus: Sequence[Mapping[str, object]] = (),
    verdict: str = "",
) -> ChecksObject:
    """What `deepopsctl validate --json` and `doctor --json` print; `gpus` only where GPUs were measured.

    `verdict` (`interrupted`, `timeout`) is there only where the run ended before all checks were made.
    """
    made: ChecksObject = {
        "schema": SCHEMA,
        "command": command,
        "ok": ok,
        "run": run,
        "checks": entries_of(checks),
    }
    if verdict:
        made["verdict"] = verdict
    if gpus:
        made["gpus"] = list(gpus)
    return made


@dataclass(frozen=True, slots=True)
class Series:
    """What one check measured on one target, in this run and earlier ones: (when, value), the newest last.

    `status` is this run's.
    """

    suite: str
    name: str
    target: str
    unit: str
    points: tuple[tuple[str, float], ...]
    status: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """One validation: which cluster, when, how long (seconds), its nodes in the order of cluster.yml, its checks.

    `gpus` are the results of gpucheck, one a node (docs/reference/gpucheck.md), where GPUs were measured; `rates` what
    suites measured on nodes. `stopped` says why it ended before all checks were made: `interrupted`, `timeout`.
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
    rates: tuple[Series, ...] = ()

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


def figure(value: float) -> str:
    """Three digits, or all before the point: `3028`, `585`, `55.3`, `0.31`."""
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def spread(values: Iterable[float]) -> str:
    """`2998–3011`; one number if they are equal."""
    return span(figure(value) for value in ends(values))


def whole(values: Iterable[float]) -> str:
    """The same for what is counted in whole numbers: `54–63`."""
    return span(f"{value:.0f}" for value in ends(values))


def ends(values: Iterable[float]) -> tuple[float, float]:
    """The lowest and the highest."""
    listed = list(values)
    return min(listed), max(listed)


def span(texts: Iterable[str]) -> str:
    """Two ends as one text."""
    return "–".join(dict.fromkeys(texts))

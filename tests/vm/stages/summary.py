"""What a run of the stages came to: a table for people, also stored in docs/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass
class Stage:
    """One stage: its tests by their outcome, and its seconds from the first set-up to the last clearing away."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def result(self) -> str:
        """One word; a stage in which a test was skipped has not been tested completely."""
        return "failed" if self.failed else "skipped" if self.skipped or not self.passed else "passed"

    def count(self, phase: str, outcome: str, seconds: float) -> None:
        """Add one phase of one test: set-up, call or clearing away."""
        self.seconds += seconds
        if outcome == "failed":
            self.failed += 1
        elif outcome == "skipped":
            self.skipped += 1
        elif phase == "call":
            self.passed += 1


def table(stages: Sequence[Stage]) -> list[str]:
    """A plain table, which is Markdown too."""
    rows = [("stage", "result", "tests", "seconds"), ("---", "---", "--:", "--:")]
    rows += [(stage.name, stage.result, str(stage.passed + stage.failed), f"{stage.seconds:.0f}") for stage in stages]
    rows.append(("all", "", "", f"{sum(stage.seconds for stage in stages):.0f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]


def lines(stages: Sequence[Stage], versions: Mapping[str, str]) -> list[str]:
    """The table, and what it was measured with."""
    return [*table(stages), "", *(f"* {name}: {value}" for name, value in versions.items())]


def document(stages: Sequence[Stage], versions: Mapping[str, str], os: str) -> str:
    """The page for docs/."""
    head = [
        f"# What `make test-vm` found: {os}",
        "",
        "Written by `make test-vm` after a whole run that passed. What each stage proves:",
        "[Tests on virtual machines](../../develop/test-vm.md).",
        "",
    ]
    return "\n".join([*head, *lines(stages, versions)]) + "\n"

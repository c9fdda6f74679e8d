"""Results of a validation: checks, their totals and their order. Pure data, no printing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The four outcomes of a check, from worst to best."""

    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    PASS = "pass"  # noqa: S105  (a result, no password)

    @property
    def severity(self) -> int:
        """0 for the worst: sorts failures first."""
        return tuple(Status).index(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one target (a node, `NODE/INDEX` for a GPU, a partition, the cluster)."""

    suite: str
    name: str
    target: str
    status: Status
    measured: str = ""
    expected: str = ""
    unit: str = ""
    message: str = ""
    hint: str = ""

    @property
    def place(self) -> str:
        """The target; for a GPU the node that it is in."""
        return self.target.partition("/")[0]

    def to_dict(self) -> dict[str, str]:
        """The object of DESIGN's JSON schema."""
        # a hint only if it differs from the check's own advice; a doctor has thirty checks for each node
        return {key: str(getattr(self, key)) for key in FIELDS if key != "hint" or self.hint}


FIELDS = tuple(Check.__dataclass_fields__)


def parse_check(document: Mapping[str, object]) -> Check:
    """A check as a module returned it; ValueError if it is none."""
    missing = [key for key in ("suite", "name", "target", "status") if not document.get(key)]
    if missing:
        raise ValueError(f"a check without {', '.join(missing)}: {dict(document)}")
    values = {key: _text(document.get(key)) for key in FIELDS if key != "status"}
    return Check(status=Status(_text(document["status"])), **values)


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


@dataclass(frozen=True, slots=True)
class Totals:
    """Number of checks by status."""

    passed: int = 0
    warned: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def all(self) -> int:
        """Every check, skipped ones included."""
        return self.passed + self.warned + self.failed + self.skipped

    @property
    def status(self) -> Status:
        """The verdict over all: the worst that counts. Skipped checks alone count as skipped."""
        if self.failed:
            return Status.FAIL
        if self.warned:
            return Status.WARN
        return Status.PASS if self.passed else Status.SKIP

    def sentence(self) -> str:
        """`41 passed, 1 warning, 2 failed, 3 skipped`; statuses that did not occur are omitted."""
        parts = [
            (self.passed, "passed"),
            (self.warned, "warning" if self.warned == 1 else "warnings"),
            (self.failed, "failed"),
            (self.skipped, "skipped"),
        ]
        return ", ".join(f"{count} {word}" for count, word in parts if count) or "no checks"


def totals(checks: Iterable[Check]) -> Totals:
    """Count checks by status."""
    counted = Counter(check.status for check in checks)
    return Totals(
        passed=counted[Status.PASS],
        warned=counted[Status.WARN],
        failed=counted[Status.FAIL],
        skipped=counted[Status.SKIP],
    )


def worst(checks: Iterable[Check]) -> Status:
    """The worst status among checks; skip when there is none."""
    return totals(checks).status


def failed_places(checks: Iterable[Check]) -> frozenset[str]:
    """Nodes, partitions ... with at least one failed check; a GPU counts as its node."""
    return frozenset(check.place for check in checks if check.status is Status.FAIL)

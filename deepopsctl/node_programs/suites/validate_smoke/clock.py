"""Clocks: how far a node's is from the submit host's, known within the round trip's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, WARN, Check
from .context import Inputs, check, skipped

# A second is what make, rsync and log readers notice; munge refuses credentials older than 300 s, and
# tickets made by one node's clock and checked by another's fail well before that.
WARN_S = 1.0
FAIL_S = 60.0


class Offset(NamedTuple):
    """A clock's lead over another one's, in seconds, somewhere in [low, high]."""

    low: float
    high: float

    @property
    def least(self) -> float:
        """The smallest distance that fits what was measured."""
        return max(self.low, -self.high, 0.0)

    def text(self) -> str:
        """`+0.012 ± 0.004`."""
        return f"{(self.low + self.high) / 2:+.3f} ± {(self.high - self.low) / 2:.3f}"


def verify_clocks(inputs: Inputs) -> list[Check]:
    """The lead of every reporting node's clock over the submit host's."""
    reference = offset(inputs.report(inputs.submit).get("clock") or {})
    checks = []
    for name, report in inputs.reports.items():
        own = offset(report.get("clock") or {})
        lead = between(own, reference) if own and reference else None
        if name != inputs.submit:
            missing = "" if reference else f"no reading of {inputs.submit}'s clock: is it outside --limit?"
            checks.append(evaluate(name, lead, inputs.submit, missing))
    return checks


def offset(reading: Mapping[str, Any]) -> Offset | None:
    """A node's lead over the control machine: it read `remote` between this one's `before` and `after`."""
    try:
        before, remote, after = (float(reading[key]) for key in ("before", "remote", "after"))
    except (KeyError, TypeError, ValueError):
        return None
    return Offset(remote - after, remote - before)


def between(node: Offset, submit: Offset) -> Offset:
    """The node's lead over the submit host."""
    return Offset(node.low - submit.high, node.high - submit.low)


def evaluate(node: str, lead: Offset | None, submit: str, reason: str = "") -> Check:
    """Warn or fail only where even the kindest reading of the measurement is too far off."""
    expected = f"within {WARN_S:g}"
    if lead is None:
        return skipped("clock", node, reason or "no reading of the node's clock")
    status = FAIL if lead.least > FAIL_S else WARN if lead.least > WARN_S else PASS
    text = ""
    if status != PASS:
        word = "ahead of" if lead.low > 0 else "behind"
        text = f"the clock is at least {lead.least:.1f} s {word} {submit}'s"
    return check("clock", node, status, lead.text(), expected, "s", text)

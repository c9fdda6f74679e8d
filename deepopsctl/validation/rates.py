"""Rates that suites measured on nodes: compared with their peers and the cluster's own past, kept for later runs.

A suite's module returns them as `rates`, each a mapping: suite, name (of the check), target, kind (only those of one
kind are peers), value, unit, share (what it may fall to of a peer's or its own rate), and `low` where less is better.
Peers are compared by their median, the past by the median of all good values that are kept: a node that loses a little
in every run is not compared with its own decline.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from deepopsctl.checks.check import Check, Status
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.files import write_atomic
from deepopsctl.report.model import Series, figure
from deepopsctl.run.outcome import RunSummary
from deepopsctl.validation.result import Validation

_HEAD = {"schema": 1, "kind": "rate-history"}
_DAMAGED = ".damaged"
# runs that are kept for each check and node
KEPT = 40
# below this part of the bound it is a failure, above it a warning
_FAILING = 0.8

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Rate:
    """One rate, as its suite returned it."""

    suite: str
    name: str
    target: str
    kind: str
    value: float
    unit: str
    share: float
    low: bool = False

    @property
    def key(self) -> Key:
        """What it is known by in later runs."""
        return self.suite, self.name, self.target


@dataclass(frozen=True, slots=True)
class Point:
    """One earlier measurement; one that was not good is drawn, and nothing is compared with it."""

    when: str
    value: float
    good: bool


History = Mapping[Key, Sequence[Point]]


def with_rates(validation: Validation, directory: ClusterDir) -> tuple[Validation, tuple[str, ...]]:
    """The validation with checks of its rates, and warnings about the history."""
    rates = rates_of(validation.outcome.summary)
    if not rates:
        return validation, ()
    path, warnings = directory.rate_history, []
    try:
        history = read(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        history = {}
        path.replace(path.with_name(path.name + _DAMAGED))
        warnings.append(f"{path.name} can't be read ({error}): it was renamed to {path.name}{_DAMAGED}")
    checks = evaluate(rates, history)
    after = updated(history, rates, checks, validation.facts.when.isoformat(timespec="seconds"))
    try:
        write_atomic(path, render(after))
    except OSError as error:
        warnings.append(f"{path.name} can't be written ({error.strerror}): later runs can't compare with this one")
    facts = validation.facts
    series = tuple(_series(rate, check, after) for rate, check in zip(rates, checks, strict=True))
    facts = replace(facts, checks=(*facts.checks, *checks), rates=series)
    return replace(validation, facts=facts), tuple(warnings)


def rates_of(summary: RunSummary) -> tuple[Rate, ...]:
    """What suites returned; an entry that is not a rate is left out."""
    return tuple(rate for task in summary.results for entry in task.entries("rates") if (rate := _rate(entry)))


def _rate(entry: Mapping[str, object]) -> Rate | None:
    try:
        suite, name, target, kind, unit = (str(entry[key]) for key in ("suite", "name", "target", "kind", "unit"))
        value, share = (float(str(entry[key])) for key in ("value", "share"))
    except (KeyError, ValueError):
        return None
    return (
        Rate(suite, name, target, kind, value, unit, share, entry.get("low") is True) if 0 < value < math.inf else None
    )


def evaluate(rates: Sequence[Rate], history: History) -> tuple[Check, ...]:
    """A check for each rate, in their order."""
    return tuple(_evaluate(rate, rates, history.get(rate.key, ())) for rate in rates)


def _evaluate(rate: Rate, rates: Sequence[Rate], past: Sequence[Point]) -> Check:
    own = (rate.suite, rate.name, rate.kind)
    peers = [each.value for each in rates if (each.suite, each.name, each.kind) == own]
    good = [point.value for point in past if point.good]
    usual = {
        **({f"the median of {len(peers)}": median(peers)} if len(peers) > 1 else {}),
        **({f"its own past since {past[0].when[:10]}": median(good)} if good else {}),
    }
    shares = {what: value / rate.value if rate.low else rate.value / value for what, value in usual.items()}
    worst = min(shares.values(), default=1.0)
    status = Status.PASS if worst >= rate.share else Status.WARN if worst >= rate.share * _FAILING else Status.FAIL
    nearest = (min if rate.low else max)(usual.values(), default=0.0)
    bound = nearest / rate.share if rate.low else nearest * rate.share
    texts = [f"{figure(rate.value / usual[what] * 100)}% of {what} ({figure(usual[what])})" for what in usual]
    return Check(
        rate.suite, rate.name, rate.target, status, figure(rate.value),
        f"at {'most' if rate.low else 'least'} {figure(bound)}" if usual else "nothing to compare with yet",
        rate.unit, "; ".join(texts),
    )  # fmt: skip


def updated(history: History, rates: Sequence[Rate], checks: Sequence[Check], when: str) -> dict[Key, list[Point]]:
    """The history with this run."""
    after = {key: list(points) for key, points in history.items()}
    for rate, check in zip(rates, checks, strict=True):
        point = Point(when, float(f"{rate.value:.5g}"), check.status is Status.PASS)
        after[rate.key] = [*after.get(rate.key, ()), point][-KEPT:]
    return after


def _series(rate: Rate, check: Check, history: Mapping[Key, Sequence[Point]]) -> Series:
    points = tuple((point.when, point.value) for point in history[rate.key])
    return Series(*rate.key, rate.unit, points, str(check.status))


def render(history: History) -> str:
    """One line for each check and target: git shows what changed, and a line can be deleted to start again."""
    lines: Iterable[object] = (
        {"suite": suite, "name": name, "target": target, "points": [[p.when, p.value, p.good] for p in points]}
        for (suite, name, target), points in sorted(history.items())
    )
    return "".join(json.dumps(line) + "\n" for line in (_HEAD, *lines))


def read(text: str) -> dict[Key, list[Point]]:
    """The history; ValueError, KeyError or TypeError where it is none."""
    head, *lines = text.splitlines() or [""]
    if json.loads(head) != _HEAD:
        raise ValueError("its first line is not that of a history of rates")
    history = {}
    for line in map(json.loads, lines):
        points = [Point(str(when), float(value), bool(good)) for when, value, good in line["points"]]
        history[str(line["suite"]), str(line["name"]), str(line["target"])] = points
    return history

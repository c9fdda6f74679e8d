"""What each panel of each dashboard costs, asked as Grafana asks when a user opens the page; and each rule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.measured_prometheus import RULES, Prometheus
from deepopsctl.monitoring import queries
from tests.support.opened_dashboards import as_opened

STEP_S = 15
# all are asked so often, one after the other, and the cheapest counts: what Prometheus has to clear away after some
# queries is paid by those that come next
TIMES = 3


@dataclass(frozen=True)
class Cost:
    """Processor time of one query, more stable than elapsed time on a busy host; and its result."""

    where: str
    what: str
    query: str
    cpu_s: float
    seconds: float
    series: int = 0
    points: int = 0
    # in Prometheus' words
    refused: str = ""


def of_panels(prometheus: Prometheus, until: float, minutes: float) -> list[Cost]:
    """Every query of every panel, the dearest first; what shows a course is asked for that many minutes."""
    span = {"start": f"{until - minutes * 60:.0f}", "end": f"{until:.0f}", "step": str(STEP_S)}
    now = {"time": f"{until:.0f}"}

    def once(asked: queries.Asked) -> Cost:
        path, when = ("query", now) if asked.at_once else ("query_range", span)
        return _asked(prometheus, asked.dashboard, asked.panel, path, asked.text, when)

    opened = [asked for dashboard in queries.dashboards() for asked in as_opened(prometheus, dashboard)]
    return _cheapest([[once(asked) for asked in opened] for _ in range(TIMES)])


def of_rules(prometheus: Prometheus, until: float) -> list[Cost]:
    """Every rule, evaluated once; the dearest first."""
    now = {"time": f"{until:.0f}"}
    rounds = [
        [_asked(prometheus, group, name, "query", f"count({expr})", now) for group, name, expr in _rules()]
        for _ in range(TIMES)
    ]
    return _cheapest(rounds)


def seconds_by_place(costs: list[Cost]) -> dict[str, float]:
    """Seconds of processor time by where it is spent."""
    seconds: dict[str, float] = {}
    for cost in costs:
        seconds[cost.where] = round(seconds.get(cost.where, 0) + cost.cpu_s, 3)
    return seconds


def _rules() -> Iterator[tuple[str, str, str]]:
    for path in sorted(RULES.glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                yield group["name"], rule.get("record") or rule["alert"], rule["expr"]


def _cheapest(rounds: list[list[Cost]]) -> list[Cost]:
    cheapest = [min(costs, key=lambda cost: cost.cpu_s) for costs in zip(*rounds, strict=True)]
    return sorted(cheapest, key=lambda cost: -cost.cpu_s)


def _asked(prometheus: Prometheus, where: str, what: str, path: str, text: str, when: dict[str, str]) -> Cost:
    cpu, started, refused = prometheus.cpu(), time.perf_counter(), ""
    series: list[dict[str, Any]] = []
    try:
        series = prometheus.get(path, query=text, **when)["result"]
    except (ValueError, OSError) as error:
        refused = str(error)[:200]
    elapsed_s, used = time.perf_counter() - started, prometheus.cpu() - cpu
    points = sum(len(one.get("values", [0])) for one in series)
    return Cost(where, what, text[:200], round(used, 3), round(elapsed_s, 3), len(series), points, refused)

"""Rates of nodes: compared with the others and with the past, kept, and drawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.checks.check import Check
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.model.cluster import Access, Cluster
from deepopsctl.report.html import render_html
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import TaskResult
from deepopsctl.validation.rates import KEPT, read, with_rates
from deepopsctl.validation.result import Validation, examine
from tests.support.runs import run_of

WHEN = datetime(2026, 11, 21, tzinfo=UTC)
CLUSTER = Cluster("hpc", Access("ubuntu"), (), ())


def rate(node: str, value: float, **changed: Any) -> dict[str, Any]:
    usual = {"suite": "training", "name": "training-rate", "kind": "2 cpu", "unit": "samples/s", "share": 0.85}
    return {**usual, "target": node, "value": value, **changed}


def validated(directory: Path, *rates: dict[str, Any], day: int = 0) -> tuple[Validation, tuple[str, ...]]:
    place = directory / "runs" / str(day)
    place.mkdir(parents=True)
    data = {"checks": [], "rates": list(rates)}
    outcome = run_of(TaskResult("ctl1", "Train", data), directory=place, hosts={"ctl1": Totals(ok=1)})
    facts = examine(outcome, CLUSTER, ("training",), WHEN + timedelta(days=day))
    return with_rates(facts, ClusterDir(directory))


def actual(validation: Validation, target: str) -> Check:
    (check,) = [check for check in validation.facts.checks if check.target == target]
    return check


@pytest.mark.parametrize(("value", "status"), [(96, "pass"), (80, "warn"), (60, "fail"), (300, "pass")])
def test_the_slow_node_is_named_next_to_its_peers(tmp_path: Path, value: float, status: str) -> None:
    nodes = [rate(f"gpu0{number}", 100) for number in (1, 2, 3)]
    other_kind = rate("cpu01", 7, kind="1 cpu")

    validation, notes = validated(tmp_path, *nodes, rate("gpu04", value), other_kind)

    assert notes == ()
    assert str(actual(validation, "gpu04").status) == status
    assert actual(validation, "gpu04").expected == "at least 85.0"
    assert str(actual(validation, "gpu01").status) == "pass"
    assert actual(validation, "cpu01").expected == "nothing to compare with yet"


def test_all_nodes_that_lose_at_once_are_behind_their_past(tmp_path: Path) -> None:
    validated(tmp_path, rate("gpu01", 100), rate("gpu02", 100))
    slower = [rate("gpu01", 82), rate("gpu02", 81)]

    for day in (1, 2, 3):
        # later runs are compared with good values only
        validation, _notes = validated(tmp_path, *slower, day=day)

        assert str(actual(validation, "gpu01").status) == "warn"
        assert "its own past since 2026-11-21 (100)" in actual(validation, "gpu01").message


def test_of_a_latency_less_is_better(tmp_path: Path) -> None:
    validated(tmp_path, rate("gpu01", 20, low=True, unit="us"))

    validation, _notes = validated(tmp_path, rate("gpu01", 40, low=True, unit="us"), day=1)

    assert str(actual(validation, "gpu01").status) == "fail"
    assert actual(validation, "gpu01").expected == "at most 23.5"


def test_the_history_is_bounded_and_a_damaged_one_is_put_aside(tmp_path: Path) -> None:
    for day in range(KEPT + 2):
        validated(tmp_path, rate("gpu01", 100), day=day)
    path = ClusterDir(tmp_path).rate_history
    (points,) = read(path.read_text(encoding="utf-8")).values()
    path.write_text(path.read_text(encoding="utf-8") + "{", encoding="utf-8")

    validation, notes = validated(tmp_path, rate("gpu01", 1), day=99)

    assert (len(points), points[-1].when[:10]) == (KEPT, "2027-01-01")
    assert "it was renamed to rate-history.jsonl.damaged" in notes[0]
    assert str(actual(validation, "gpu01").status) == "pass"


@pytest.mark.parametrize("value", ["nan", "inf", 0, -1, "x", None])
def test_what_is_no_rate_is_left_out(tmp_path: Path, value: Any) -> None:
    validation, _notes = validated(tmp_path, rate("gpu01", value), {"suite": "training"})

    assert validation.facts.rates == ()


def test_the_report_draws_the_runs_and_names_the_slow_node(tmp_path: Path) -> None:
    fast = [rate(f"gpu{number:02}", 100 + number) for number in range(12)]
    validated(tmp_path, *fast, rate("<slow>", 90))
    validation, _notes = validated(tmp_path, *fast, rate("<slow>", 30), day=1)

    page = render_html(validation.facts)

    assert page.count('class="curve outlier"') == 1
    assert "&lt;slow&gt; 30.0" in page
    assert "<slow>" not in page
    assert "2026-11-21" in page

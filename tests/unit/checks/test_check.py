"""Checks as data: parsing what modules hand back, counting, the verdict over all."""

from __future__ import annotations

import pytest

from deepopsctl.checks.check import Check, Status, failed_places, parse_check, totals, worst

GOOD = {
    "suite": "smoke",
    "name": "node-state",
    "target": "gpu01",
    "status": "pass",
    "measured": "idle",
    "expected": "idle",
    "unit": "",
    "message": "",
}


def check(status: str, target: str = "gpu01") -> Check:
    return parse_check({**GOOD, "status": status, "target": target})


def test_a_check_survives_the_way_through_json() -> None:
    assert parse_check(GOOD).to_dict() == GOOD


def test_numbers_of_a_module_become_text() -> None:
    assert parse_check({**GOOD, "measured": 8, "expected": None}).measured == "8"


@pytest.mark.parametrize("key", ["suite", "name", "target", "status"])
def test_a_check_without_a_name_a_target_or_an_outcome_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"without {key}"):
        parse_check({**GOOD, key: ""})


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="okay"):
        parse_check({**GOOD, "status": "okay"})


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (["pass", "warn", "fail", "skip"], Status.FAIL),
        (["pass", "warn", "skip"], Status.WARN),
        (["pass", "skip"], Status.PASS),
        (["skip", "skip"], Status.SKIP),
        ([], Status.SKIP),
    ],
)
def test_the_worst_outcome_that_counts_is_the_verdict(statuses: list[str], verdict: Status) -> None:
    assert worst([check(status) for status in statuses]) is verdict


def test_totals_name_only_what_occurred() -> None:
    counted = totals([check("pass"), check("pass"), check("warn"), check("skip")])

    assert counted.all == 4
    assert counted.sentence() == "2 passed, 1 warning, 1 skipped"
    assert totals([]).sentence() == "no checks"


def test_failed_places_are_nodes_with_a_failure_of_their_own_or_of_one_of_their_gpus() -> None:
    outcomes = {"gpu01": "fail", "gpu02": "pass", "gpu03": "warn", "gpu04/3": "fail", "gpu05/0": "pass"}

    assert failed_places([check(status, target) for target, status in outcomes.items()]) == {"gpu01", "gpu04"}

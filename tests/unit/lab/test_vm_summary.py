"""The table at the end of `make test-vm`: what it calls a stage that was proven."""

from __future__ import annotations

import pytest

from tests.vm.stages.summary import Stage


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], "passed"),
        ([("setup", "passed"), ("call", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "failed"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
        ([("setup", "passed")], "skipped"),
    ],
)
def test_a_stage_has_passed_when_all_of_it_did(outcomes: list[tuple[str, str]], result: str) -> None:
    stage = Stage("reboot")
    for phase, outcome in outcomes:
        stage.count(phase, outcome, 1.5)

    assert stage.result == result
    assert stage.seconds == 1.5 * len(outcomes)

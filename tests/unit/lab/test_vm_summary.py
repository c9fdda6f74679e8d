"""The table at the end of `make test-vm`: what it calls a stage that was proven."""

from __future__ import annotations

import pytest

from tests.vm.stages.summary import Stage, document


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


def test_the_page_has_the_release_each_stage_the_sum_and_the_versions() -> None:
    stages = [Stage("deploy", passed=5, seconds=500.4), Stage("reboot", passed=1, failed=1, seconds=99.8)]
    page = document(stages, {"QEMU": "7.2.22"}, "debian13")

    assert page.startswith("# What `make test-vm` found: debian13\n")
    assert "| deploy | passed | 5     | 500     |\n| reboot | failed | 2     | 100     |\n| all " in page
    assert "| 600     |" in page
    assert page.endswith("* QEMU: 7.2.22\n")

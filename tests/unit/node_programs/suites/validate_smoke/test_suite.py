"""The order of the smoke suite: each trial is registered once, with what is skipped without nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from deepopsctl.checks.catalogue.smoke import SMOKE
from deepopsctl.node_programs.suites.validate_smoke import suite
from deepopsctl.node_programs.suites.validate_smoke.context import Context


def skipped_names(*mpi: str) -> list[str]:
    inputs = SimpleNamespace(cluster="lab", mpi=mpi, directories={}, environments=[], guide_script="")
    checks = suite.skipped_trials(cast(Context, SimpleNamespace(inputs=inputs)), "no node answered")
    assert {(check["status"], check["message"]) for check in checks} == {("skip", "no node answered")}
    return [check["name"] for check in checks]


def test_every_check_of_a_trial_is_in_the_catalogue() -> None:
    names = [name for stage in suite.STAGES for trial in stage for name in trial.checks]

    assert set(names) <= SMOKE.keys()
    assert len(names) == len(set(names)) == 13


def test_a_trial_that_is_not_wanted_is_not_reported_as_skipped() -> None:
    assert set(skipped_names("openmpi")) - set(skipped_names()) == {"mpi"}
    assert set(skipped_names("mpich")) - set(skipped_names()) == {"mpi-mpich"}
    assert "job-directories" not in skipped_names("openmpi")
    assert "accounting-jobs" in skipped_names()

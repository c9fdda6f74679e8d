"""What the suites of `validate` do alike."""

from __future__ import annotations

from types import ModuleType

import pytest

from deepopsctl.node_programs._slurm_jobs import suite
from deepopsctl.node_programs.suites.validate_environment import main as environment
from deepopsctl.node_programs.suites.validate_gpu import main as gpu
from deepopsctl.node_programs.suites.validate_monitoring import main as monitoring
from deepopsctl.node_programs.suites.validate_smoke import main as smoke
from deepopsctl.node_programs.suites.validate_storage import main as storage

NOTHING = {"deepops": {"checks": []}, "elapsed_s": 0.0, "msg": "check mode: nothing is tried"}


@pytest.mark.parametrize(
    ("program", "phase"), [(gpu, ""), (monitoring, "suite"), (smoke, "suite"), (storage, "trials")]
)
def test_no_suite_tries_anything_in_check_mode(program: ModuleType, phase: str) -> None:
    assert program.main({"phase": phase, "check_mode": True}) == NOTHING


@pytest.mark.parametrize(
    ("program", "inputs", "check"),
    [
        (environment, {"phase": "users", "people": {}}, "environment-people"),
        (monitoring, {"phase": "suite", "enabled": False}, "monitoring-enabled"),
        (storage, {"phase": "trials", "wanted": []}, "storage-entries"),
    ],
)
def test_where_there_is_nothing_to_try_one_check_says_so(
    program: ModuleType, inputs: dict[str, object], check: str
) -> None:
    result = program.main({"cluster": "hpc", "check_mode": False, **inputs})

    assert [(made["name"], made["status"]) for made in result["deepops"]["checks"]] == [(check, "skip")]


def test_the_result_has_what_reports_read_and_how_long_it_took() -> None:
    result = suite.run_trials({"check_mode": False}, lambda request: {"checks": [], "gpus": [dict(request)]})

    assert result == {"deepops": {"checks": [], "gpus": [{"check_mode": False}]}, "elapsed_s": 0.0}


def test_the_jobs_of_a_run_have_a_name_and_a_reservation_of_their_own() -> None:
    request = {"queue_timeout": "20", "reservation": "trial"}

    first, second = (suite.session(request, "smoke", 60.0) for _ in range(2))

    assert first.name("x") != second.name("x")
    assert (first.queue_timeout, first.run_timeout, first.reservation) == (20.0, 60.0, "trial")

"""What the suite makes of the lines of training jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepopsctl.node_programs._slurm_jobs.session import Outcome
from deepopsctl.node_programs.suites.validate_training import evaluation
from deepopsctl.node_programs.suites.validate_training.evaluation import Result


def line(**changed: Any) -> str:
    entry = {"node": "gpu01", "processes": 2, "device": "cpu", "loss": 0.25, "samples_per_s": 2000.0, **changed}
    return "result: " + json.dumps(entry)


def test_results_are_read_between_other_lines_and_wrong_ones_are_left_out() -> None:
    wrong = [line(loss=None), line(processes=0), line(samples_per_s="many"), "result: [1]", "result: {", "x" * 2000]
    out = "\n".join(["welcome", f"[rank0] {line()}", *wrong, line(node="gpu02", loss="nan")])

    assert [(each.node, each.rate) for each in evaluation.results(out)] == [("gpu01", 2000.0), ("gpu02", 2000.0)]


@pytest.mark.parametrize(
    ("loss", "status"), [(0.25, "pass"), (0.2524, "pass"), (0.26, "fail"), (0.1, "fail"), (float("nan"), "fail")]
)
def test_a_loss_has_to_be_that_of_a_single_process(loss: float, status: str) -> None:
    check = evaluation.of_loss("training-ddp", "gpu[01-02]", loss, 0.25, 0.01, "4 processes")

    assert (check["status"], check["expected"]) == (status, "0.25 within 0.01")


def test_rates_are_those_of_one_process_and_what_remains_together() -> None:
    alone = [Result("gpu01", 2, "cpu", 0.1, 2000.0), Result("gpu02", 2, "cpu", 0.1, 1000.0)]
    together = Result("gpu01", 4, "cpu", 0.1, 1500.0)

    made = [(each["name"], each["target"], each["value"]) for each in evaluation.rates(alone, together, "all", 0.85)]

    assert made == [
        ("training-rate", "gpu01", 1000.0), ("training-rate", "gpu02", 500.0), ("training-efficiency", "all", 50.0),
    ]  # fmt: skip
    assert len(list(evaluation.rates(alone[:1], Result("gpu01", 2, "cpu", 0.1, 1.0), "gpu01", 0.85))) == 1


def test_the_error_of_a_process_is_told_and_not_torchruns_own() -> None:
    err = "W1 ok\n[rank1]: RuntimeError: no route\ntorch...ChildFailedError: \nsrun: error: task 0: Exited\n"

    assert evaluation.why(Outcome("ended", 1, "", err)) == "[rank1]: RuntimeError: no route"
    assert "did not end in time" in evaluation.why(Outcome("hung", -1, "", err))

"""What a job printed of the environments that it loaded, as a check of its node."""

from __future__ import annotations

import json

import pytest

from deepopsctl.node_programs._slurm_jobs.session import Outcome
from deepopsctl.node_programs.suites.validate_smoke import environments

LATE = "the job did not start in time; Slurm's reason"
MODULES = ["dl/2026.12", "bio/2026.11"]


def printed(*answers: object, err: str = "") -> Outcome:
    lines = [environments.MARK + json.dumps(each) for each in answers]
    return Outcome("ended", 0, "\n".join(["a user's own words", *lines]), err, "")


GOOD = ["n1", MODULES[0], ""], ["n1", MODULES[1], ""], ["n2", MODULES[0], "of another node"]


@pytest.mark.parametrize(
    ("outcome", "status", "message"),
    [
        (printed(*GOOD), "pass", ""),
        (printed(GOOD[0], ["n1", MODULES[1], "numpy 2.1 is missing"]), "fail", "bio/2026.11: numpy 2.1 is missing"),
        (printed(GOOD[0]), "fail", "bio/2026.11 can't be loaded"),
        (printed(err="no module"), "fail", "dl/2026.12 can't be loaded; bio/2026.11 can't be loaded (no module)"),
        (printed(*GOOD, {"n1": 1}, ["n1"], ["n1", MODULES[0], "x" * 3000]), "pass", ""),
        (Outcome("hung", 0, "", "", ""), "fail", "the job started but did not end in time"),
        (Outcome("waiting", 0, "", "", "(Resources)"), "skip", f"{LATE}: (Resources)"),
    ],
)  # fmt: skip
def test_a_node_has_all_environments_or_its_check_says_which_it_lacks(
    outcome: Outcome, status: str, message: str
) -> None:
    check = environments.evaluate("n1", MODULES, outcome)

    assert (check["status"], check["message"]) == (status, message)

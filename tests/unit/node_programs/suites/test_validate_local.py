"""A site's own checks: real executables, also those that print too much, hang, or try to pass for something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_local import main, runner
from deepopsctl.node_programs.suites.validate_local.evaluation import evaluate

SHELL = "#!/bin/sh\n"


def checked(script: str, seconds: float = 20) -> dict[str, str]:
    return evaluate("fan-speed", "gpu01", runner.run_executable((SHELL + script).encode(), seconds), seconds)


def test_a_check_has_what_the_executable_printed() -> None:
    script = """echo '{"status": "warn", "measured": 71.5, "expected": "below 70", "unit": "C", "message": "a fan"}'"""

    assert checked(script) == {
        "suite": "local", "name": "fan-speed", "target": "gpu01", "status": "warn", "measured": "71.5",
        "expected": "below 70", "unit": "C", "message": "a fan",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("yes", "printed more than 64 KiB"),
        ("echo no json; echo broken fan >&2; exit 3", "printed no JSON object, and exits 3: broken fan"),
        ("echo '[1]'", "printed JSON that is not an object"),
        ("""echo '{"status": "good"}'""", "has no status of pass, warn, fail, skip"),
        ("""echo '{"status": ["pass"]}'""", "has no status of pass, warn, fail, skip"),
        ("""echo '{"status": "pass", "suite": "gpu"}'""", "has keys besides status, measured"),
        ("""echo '{"status": "pass", "measured": {"a": 1}}'""", "measured is a list or an object"),
        ("""echo '{"status": "pass"}'; exit 2""", "says pass and exits 2"),
        ("""printf '%60000s' '' | tr ' ' '['""", "printed no JSON object"),
        ("head -c 1000 /dev/zero; printf '\\033[2J' >&2", "printed no JSON object"),
    ],
)
def test_what_is_no_result_is_a_failure(script: str, message: str) -> None:
    started = time.monotonic()

    check = checked(script)

    assert time.monotonic() - started < 15
    assert (check["status"], message in check["message"]) == ("fail", True), check
    assert check["message"].isprintable()
    assert len(check["message"]) <= 300


def test_long_and_hostile_texts_are_cut() -> None:
    answer = {"status": "fail", "message": "\x1b[2J" + "x" * 5000, "measured": "y" * 500}

    check = checked(f"cat <<'END'\n{json.dumps(answer)}\nEND")

    assert check["status"] == "fail"
    assert check["message"].startswith("[2Jxxx")
    assert [len(check["message"]), len(check["measured"])] == [300, 100]


# other tests sleep as well
SLEEP = f"sleep 60.{os.getpid()}"


@pytest.mark.parametrize("script", [SLEEP, f"{SLEEP} & echo '{{}}'", f"exec >&- 2>&-; {SLEEP}"])
def test_what_does_not_end_is_ended_with_what_it_started(script: str) -> None:
    started = time.monotonic()

    assert checked(script, 1)["message"] == "did not end within 1 s"
    assert time.monotonic() - started < 20
    assert subprocess.run(["pgrep", "-fx", SLEEP], capture_output=True, text=True).stdout == ""


def test_a_job_runs_all_of_them_and_leaves_nothing(tmp_path: Path) -> None:
    words = [f"{name}={content}" for name, content in {
        "good": "IyEvYmluL3NoCmVjaG8gJ3sic3RhdHVzIjogInBhc3MifSc7IHB3ZCA+JjIK", "broken": "eA==",
    }.items()]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", main._RUNNER, "20", *words], capture_output=True, text=True, check=True,
        env={"SLURMD_NODENAME": "gpu01", "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip

    answers = main._answers(f"{done.stdout}{runner.MARK}{json.dumps(['x'])}\n{runner.MARK}{{\n")

    assert list(answers) == [("gpu01", "good"), ("gpu01", "broken")]
    checks = [evaluate(name, node, answer, 20) for (node, name), answer in answers.items()]
    assert [(check["status"], check["message"]) for check in checks] == [
        ("pass", ""), ("fail", "printed no JSON object, and exits 127: can't be run: Exec format error"),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []

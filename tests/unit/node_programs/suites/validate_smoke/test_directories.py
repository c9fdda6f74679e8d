"""How the two jobs of the check `job-directories` are evaluated: each fault is reported, and none is overlooked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._slurm_jobs import probe, probe_jobs
from deepopsctl.node_programs.suites.validate_smoke import directories

WANTED = {"directory": "/scratch/slurm-jobs", "private": ["/tmp", "/dev/shm"]}
GOOD = {"own": "/tmp", "mode": "700", "owner": 1000, "user": 1000}


def evaluated(first: list[dict[str, Any]], second: list[dict[str, Any]], **troubles: Any) -> tuple[str, str]:
    pair = directories.Pair(
        probe_jobs.Answers({"gpu01": first} if first else {}, troubles),
        probe_jobs.Answers({"gpu01": second} if second else {}, {}),
    )
    result = directories.evaluate("gpu01", pair, WANTED)
    return result["status"], result["message"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"own": ""}, {}, "SLURM_TMPDIR is not set in a job"),
        ({"mode": "1777"}, {}, "/tmp has mode 1777"),
        ({"owner": 0}, {}, "/tmp belongs to uid 0"),
        ({"error": "Permission denied"}, {}, "/tmp: Permission denied"),
        ({}, {"own": ""}, "SLURM_TMPDIR is not set in a job"),
        ({}, {"seen": ["/dev/shm"]}, "a job of the same user sees what another has in /dev/shm"),
    ],
)
def test_each_fault_fails_and_is_named(first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    assert evaluated([GOOD | first], [{**GOOD, "seen": [], **second}, {"left": ""}]) == ("fail", message)


def test_directories_of_their_own_that_went_with_their_jobs_pass() -> None:
    second, left = {**GOOD, "seen": []}, "/scratch/slurm-jobs/17"

    assert evaluated([GOOD], [second, {"left": ""}]) == ("pass", "/dev/shm as well")
    assert evaluated([GOOD], [second, {"left": left}]) == ("fail", f"{left} is still there after its job's end")
    # it was not read again
    assert evaluated([GOOD], [second])[0] == "skip"
    assert evaluated([], [], gpu01=probe_jobs.Trouble("fail", "launch failed")) == ("fail", "launch failed")


def test_the_job_reports_its_own_directory_and_removes_its_mark(tmp_path: Path) -> None:
    program = Path(probe.__file__).read_text(encoding="utf-8")
    words = [sys.executable, "-I", "-c", program, "directories", "a-token", "", str(tmp_path)]
    done = subprocess.run(
        words, input="", capture_output=True, text=True, timeout=60, env={"SLURM_TMPDIR": str(tmp_path)}
    )

    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.removeprefix(probe.MARK))
    assert (line["own"], "error" in line) == (str(tmp_path), False)
    assert list(tmp_path.iterdir()) == []

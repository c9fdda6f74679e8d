"""The faults of `validate ha` end by themselves, and no job of it stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import settings
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.suites.validate_ha import faults, jobs, main
from tests.support.files import write_program


def test_a_slurmctld_that_does_not_run_is_not_frozen_in_place_of_what_would_wake_it(tmp_path: Path) -> None:
    program = write_program(tmp_path / "systemctl", "echo 0")
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    text = faults.script("frozen", 0, with_slurmdbd=False)

    with subprocess.Popen(["/bin/sh", "-c", text], env=environment, start_new_session=True) as shell:
        try:
            assert shell.wait(10) == 1
        finally:
            shell.kill()


def test_jobs_are_cancelled_by_name_also_where_their_submission_came_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([Result("sbatch", 0, "7\n", "", 0.1), Result("sbatch", 124, "", "no answer within 15 s", 15.0)])
    cancelled: list[str] = []

    def as_user(argv: list[str], _limit_s: float) -> Result:
        if argv[0] == "sbatch":
            return next(answers)
        cancelled.append(argv[1])
        return Result("scancel", 0, "", "", 0.1)

    monkeypatch.setattr(jobs, "_as_user", as_user)
    monkeypatch.setattr(jobs, "wait_until_runs", lambda *_arguments: True)
    config = {"hosts": ["ctl1", "ctl2"], "directory": str(tmp_path)}
    monkeypatch.setattr(settings, "load", lambda _path: config)
    monkeypatch.setattr(main, "SAVE_LIMIT_S", 0.0)
    monkeypatch.setattr(main, "in_control", lambda _config: "ctl1")

    result = main.main({"phase": "begin", "token": "abc"})

    assert result["jobs"] == []
    message = "no job can be submitted: nothing could be seen to continue"
    assert [check["message"] for check in result["deepops"]["checks"]] == [message]
    whats = ("runs", "waits", "killed", "frozen", "cut-off")
    assert cancelled == [f"--name=deepopsctl-ha-abc-{what}" for what in whats]

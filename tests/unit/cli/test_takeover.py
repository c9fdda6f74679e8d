"""`takeover` where not all nodes have answered."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.cli import main
from deepopsctl.cli.commands import takeover
from deepopsctl.cluster.create import create_cluster
from deepopsctl.errors import ExitCode
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import Failure, RunOutcome, Verdict
from deepopsctl.takeover.takeover import Takeover
from tests.data.doctor_samples import cluster
from tests.support.runs import run_of


def test_nothing_is_written_while_another_run_works_on_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = create_cluster(tmp_path / "hpc", cluster())
    before = directory.settings_text()
    monkeypatch.setattr(takeover, "_collect_facts", lambda *_: run_of())
    monkeypatch.setattr("deepopsctl.takeover.preflight.read_facts", lambda _: {directory.cluster().controllers[0].name})
    taken = Takeover({"slurm_cluster_name": "other"}, {}, (), (), {})
    monkeypatch.setattr("deepopsctl.takeover.takeover.plan_takeover", lambda *_: taken)

    with (directory.runs / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main.run_command_line(["-C", str(directory.path), "takeover"]) == ExitCode.FAILED

    assert "another run" in capsys.readouterr().err
    assert directory.settings_text() == before


@pytest.mark.parametrize(
    ("stopped", "code"), [(None, ExitCode.UNREACHABLE), (Verdict.INTERRUPTED, ExitCode.INTERRUPTED)]
)
def test_json_is_one_object_and_nothing_is_written(
    stopped: Verdict | None,
    code: ExitCode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = create_cluster(tmp_path / "hpc", cluster()).path
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    gone = Failure("ctl1", "slurm", "Read", "no answer", "", unreachable=True)

    def collect(_settings: object, _directory: object, facts: Path, *_: object) -> RunOutcome:
        if stopped:
            # cut off while it was fetched
            (facts / "gpu01.json").write_text("{")
        ended = run_of(gone, hosts={"ctl1": Totals(unreachable=1)}, code=4, stopped=stopped)
        return replace(ended, command="takeover")

    monkeypatch.setattr(takeover, "_collect_facts", collect)

    assert main.run_command_line(["-C", str(directory), "takeover", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert before == {path: path.read_bytes() for path in before}

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepopsctl.run.events import Totals
from deepopsctl.run.history import past_run, past_runs
from deepopsctl.run.workspace import RunDir, Workspace

REQUEST = {"command": "deploy", "pid": 0, "user": "ada", "started": "2026-11-21T09:30:12+00:00"}
SUMMARY = {
    "ok": False,
    "verdict": "failed",
    "elapsed_s": 41.2,
    "hosts": {
        "n1": {"ok": 3, "changed": 1, "failed": 1, "unreachable": 0, "skipped": 0},
        "n2": {"ok": 0, "changed": 0, "failed": 0, "unreachable": 1, "skipped": 0},
    },
    "failures": [
        {"host": "n1", "component": "slurm", "task": "t", "message": "m", "hint": ""},
        {"host": "n2", "component": "slurm", "task": "t", "message": "gone", "hint": ""},
        {"host": "n3", "component": "slurm", "task": "Resume the node", "message": "drained by root", "hint": ""},
    ],
}
EVENT = {
    "host": "n1",
    "component": "slurm",
    "play": "p",
    "task": "t",
    "status": "changed",
    "changed": True,
    "elapsed_s": 1,
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path / "runs" / "20261121-093012-deploy")
    run_dir.path.mkdir(parents=True)
    run_dir.write(run_dir.request, REQUEST)
    return run_dir


def test_a_finished_run_is_what_its_summary_says(run: RunDir) -> None:
    run.write(run.summary, SUMMARY)
    result = past_run(run)
    assert result.state == "failed"
    assert result.hosts["n1"] == Totals(ok=3, changed=1, failed=1)
    assert [failure.unreachable for failure in result.failures] == [False, True, False]
    assert result.as_object() == {
        "run": run.id, "command": "deploy", "state": "failed", "started": REQUEST["started"], "user": "ada",
        "elapsed_s": 41.2, "nodes": 2, "changed": 1, "failed": 1, "unreachable": 1,
    }  # fmt: skip


def test_a_killed_run_is_known_by_its_events_even_if_the_last_is_cut_off(run: RunDir) -> None:
    failed = {**EVENT, "host": "n2", "status": "failed", "changed": False, "message": "no"}
    lines = [json.dumps(EVENT), json.dumps(failed), '{"host": "n3", "task": "\N{LATIN SMALL LETTER A WITH DIAERESIS}']
    run.events.write_bytes("\n".join(lines).encode()[:-1])
    result = past_run(run)
    assert result.state == "killed"
    assert result.hosts == {"n1": Totals(ok=1, changed=1), "n2": Totals(failed=1)}
    assert [failure.message for failure in result.failures] == ["no"]
    assert result.elapsed_s is None


def test_an_empty_directory_is_a_killed_run(run: RunDir) -> None:
    run.request.unlink()
    assert past_runs(Workspace(run.path.parent))[0].state == "killed"
    assert past_run(run).details()["ok"] is False


def test_a_run_of_another_version_of_deepopsctl_is_shown(run: RunDir) -> None:
    newer = {"ok": 1, "paused": 2}
    run.write(run.request, REQUEST)
    run.write(
        run.summary, {**SUMMARY, "hosts": {"n1": newer}, "failures": [{"host": "n1", "message": "m", "since": 1}]}
    )

    past = past_run(run)

    assert past.as_object()["nodes"] == 1
    assert [(failure.host, failure.message) for failure in past.failures] == [("n1", "m")]

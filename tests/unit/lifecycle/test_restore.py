"""What `restore` says of jobs once the queue was compared with the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cli.interactive import Console
from deepopsctl.cli.passwords import Passwords
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.lifecycle import restore
from deepopsctl.nodes.workflow import Flow, Report
from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.outcome import RunOutcome, RunSummary, TaskResult
from deepopsctl.run.workspace import RunDir
from tests.unit.lifecycle.small_cluster import CLUSTER

COMPARED = {
    "running": 2,
    "pending": 0,
    "held": [{"id": 41, "user": "alice"}],
    "stuck": [{"id": 42, "user": "bob"}],
    "silent": [],
}


def test_jobs_that_were_lost_are_named_though_slurmdbd_has_a_host_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.yml").write_text("schema: 1\n")
    directory = ClusterDir.open(tmp_path)
    # the host of slurmdbd has nothing to compare, and answers at once
    results = tuple(TaskResult(host, "", {"reconciled": seen}) for host, seen in (("dbd1", {}), ("ctl1", COMPARED)))
    outcome = RunOutcome(RunDir(tmp_path), "restore", RunSummary({}, (), (), (), results), 1.0, 0)
    monkeypatch.setattr(Flow, "run", lambda *_, **__: outcome)
    report = Report("restore", ())
    console = Console(directory, Passwords("", None, None), 0, yes=True)
    ending = restore._Restore(Flow(directory, RunRequest(directory, ""), console, report), CLUSTER, restore.Restore())

    ending._conclude(ending._reconcile())

    assert report.closing.endswith(": 2 jobs run, 0 wait")
    held, stuck = report.warnings
    assert "held: 41 (alice)" in held
    assert "can't requeue them: 42 (bob)" in stuck

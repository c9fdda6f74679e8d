"""What `restore` says of jobs once the queue was compared with the nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.lifecycle import restore
from deepopsctl.model.cluster import Cluster
from deepopsctl.nodes.workflow import Flow, StoppedError
from deepopsctl.run.outcome import Failure, RunOutcome, TaskResult
from deepopsctl.slurm.state import SlurmState
from tests.support.runs import CLUSTER, cluster_dir, flow, run_of

COMPARED = {
    "running": 2,
    "pending": 0,
    "held": [{"id": 41, "user": "alice"}],
    "stuck": [{"id": 42, "user": "bob"}],
    "began": [{"id": 43, "user": "eve"}],
    "unsure": [],
    "silent": [],
}


def playing(monkeypatch: pytest.MonkeyPatch, outcome: RunOutcome) -> list[str]:
    """The playbooks that are run, each run with this outcome."""
    played: list[str] = []

    def play(_flow: Flow, _cluster: Cluster, playbooks: tuple[str, ...], *_: object, **__: object) -> RunOutcome:
        played.extend(playbooks)
        return outcome

    monkeypatch.setattr(Flow, "run_playbooks", play)
    return played


def test_jobs_that_were_lost_are_named_though_slurmdbd_has_a_host_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the host of slurmdbd has nothing to compare, and answers at once
    compared = (TaskResult(host, "", {"reconciled": seen}) for host, seen in (("dbd1", {}), ("ctl1", COMPARED)))
    playing(monkeypatch, run_of(*compared))
    ending = restore._Restore(flow(cluster_dir(tmp_path)), CLUSTER, restore.Restore())

    ending._conclude(ending._reconcile())

    assert ending.flow.report.closing.endswith(": 2 jobs run, 0 wait")
    held, began, stuck = ending.flow.report.warnings
    assert "have started since, so they are held: 43 (eve)" in began
    assert "held: 41 (alice)" in held
    assert "can't requeue them: 42 (bob)" in stuck


@pytest.mark.parametrize(("part", "playbooks"), [("state", (restore.STOP, "slurm")), ("accounting", ("slurm",))])
def test_slurmctld_is_stopped_everywhere_before_its_state_is_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, playbooks: tuple[str, ...]
) -> None:
    played = playing(monkeypatch, run_of())

    restore._Restore(flow(cluster_dir(tmp_path)), CLUSTER, restore.Restore(parts=(part,)))._bring_back({})

    assert played == [*playbooks]


def test_a_set_that_one_host_could_not_fetch_keeps_no_deploy_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = run_of(Failure("ctl1", "", "Fetch the set", "no snapshot with accounting", ""), code=2)
    played = playing(monkeypatch, failed)
    monkeypatch.setattr(Flow, "survey", lambda *_, **__: SlurmState())

    with pytest.raises(StoppedError, match="nothing was restored"):
        restore._Restore(flow(cluster_dir(tmp_path)), CLUSTER, restore.Restore()).restore_all()

    assert played == [restore.FETCH, restore.FORGET]


def test_jobs_that_started_since_the_set_was_made_are_named_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"snapshot": "ab12", "finished": 1, "jobs": 3, "running": [41]}
    answers = [TaskResult("cn1", "", {"living": [41, 51]}), TaskResult("cn2", "", {"living": []})]
    playing(monkeypatch, run_of(TaskResult("ctl1", "", {"restored": {"state": state}}), *answers))
    beginning = restore._Restore(flow(cluster_dir(tmp_path)), CLUSTER, restore.Restore(parts=("state",)))

    question = beginning._question(beginning._fetch())

    shown = capsys.readouterr().err
    assert "run now: 51 on cn1; Slurm will end them" in shown
    assert beginning.silent == [node.name for node in CLUSTER.compute if node.name not in ("cn1", "cn2")]
    assert "did not answer" in shown
    assert "with 3 jobs" in question


@pytest.mark.parametrize(
    ("listed", "deployed"),
    [
        # listed and never deployed: nvidia; not listed, and a set says it: environment
        (("slurm", "nvidia", "monitoring"), ["environment", "slurm", "monitoring"]),
        (("slurm",), ["environment", "slurm"]),
        (None, ["environment", "slurm", "monitoring"]),
    ],
)
def test_only_what_was_deployed_is_deployed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: tuple[str, ...] | None, deployed: list[str]
) -> None:
    state = {"snapshot": "ab12", "finished": 1, "components": ["slurm", "environment"]}
    node = TaskResult("cn1", "", {"living": [], "components": ["slurm", "monitoring", "no such"]})
    played = playing(monkeypatch, run_of(TaskResult("ctl1", "", {"restored": {"state": state}}), node))
    cluster = replace(CLUSTER, components=listed)
    ending = restore._Restore(flow(cluster_dir(tmp_path)), cluster, restore.Restore(parts=("state",)))
    ending._fetch()
    played.clear()

    ending._open()

    assert sorted(played) == sorted(deployed)

"""What `node remove` leaves where it is interrupted."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from deepopsctl.cluster.editor import SpecFile, remove_nodes
from deepopsctl.nodes.drain import DrainOptions, NodeDrain
from deepopsctl.nodes.remove import _Remove, remove
from deepopsctl.nodes.workflow import PAUSE_S, Flow, StoppedError
from deepopsctl.run.lock import is_held
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmState, WaitingJob
from tests.support.runs import CLUSTER, TEXT, cluster_dir, console, flow


def test_an_interruption_before_the_last_run_leaves_the_nodes_in_cluster_yml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **_variables: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Flow, "deploy", interrupt)
    directory = cluster_dir(tmp_path)
    removal = _Remove(flow(directory), DrainOptions("cn4", 0), CLUSTER, CLUSTER.compute[3:])

    with pytest.raises(KeyboardInterrupt):
        removal._forget(SpecFile.open(directory), remove_nodes(TEXT, ["cn4"]), ["cn4"])

    assert directory.spec.read_text() == TEXT


def test_a_run_that_works_on_the_cluster_when_the_jobs_have_ended_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, done = cluster_dir(tmp_path), list[bool]()
    directory.runs.mkdir()
    with (directory.runs / ".lock").open("w") as other:
        monkeypatch.setattr(time, "sleep", lambda s: fcntl.flock(other, fcntl.LOCK_UN) if s == PAUSE_S else None)
        monkeypatch.setattr(_Remove, "drain", lambda _: None)
        monkeypatch.setattr(NodeDrain, "wait", lambda _: fcntl.flock(other, fcntl.LOCK_EX))
        monkeypatch.setattr(_Remove, "finish", lambda _: done.append(is_held(directory.runs)))

        remove(directory, DrainOptions("cn4", 0), RunRequest(directory, ""), console(directory))

    assert done == [True]


@pytest.mark.parametrize(
    ("hold", "can_be_held", "refused"), [(False, True, True), (True, True, False), (True, False, True)]
)
def test_waiting_jobs_that_need_the_nodes_are_held_on_request_or_the_removal_is_refused(
    tmp_path: Path, hold: bool, can_be_held: bool, refused: bool
) -> None:
    slurm = SlurmState(waiting_for_leaving=(WaitingJob("7", "ada", "asks for cn4, which goes", can_be_held),))
    options = DrainOptions("cn4", 0, hold_waiting=hold)
    drain = NodeDrain(flow(cluster_dir(tmp_path)), CLUSTER, ["cn4"], "remove", options)

    if not refused:
        drain.show_waiting(slurm)
        return
    with pytest.raises(StoppedError, match=r"never start them: 7 \(ada\)") as stop:
        drain.show_waiting(slurm)
    assert ("--hold-waiting" in stop.value.hint) is can_be_held

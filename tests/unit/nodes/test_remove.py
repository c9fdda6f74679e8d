"""What `node remove` leaves where it is interrupted."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from deepopsctl.cluster.editor import SpecFile, remove_nodes
from deepopsctl.nodes.remove import _Remove, remove
from deepopsctl.nodes.wait_for_jobs import DrainOptions, NodeDrain
from deepopsctl.nodes.workflow import PAUSE_S, Flow
from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.lock import is_held
from tests.support.runs import CLUSTER, TEXT, cluster_dir, console, flow


def test_an_interruption_before_the_last_run_leaves_the_nodes_in_cluster_yml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
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

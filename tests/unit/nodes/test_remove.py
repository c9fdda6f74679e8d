"""What `node remove` leaves where it is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cluster.editor import SpecFile, remove_nodes
from deepopsctl.nodes.remove import _Remove
from deepopsctl.nodes.wait_for_jobs import DrainOptions
from deepopsctl.nodes.workflow import Flow
from tests.support.runs import CLUSTER, TEXT, cluster_dir, flow


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

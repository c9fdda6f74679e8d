"""`backup` where one of several nodes fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepopsctl.errors import UnreachableError
from deepopsctl.lifecycle import backup
from deepopsctl.lifecycle.backup import Answer, run_backup, verify_backup
from deepopsctl.model.cluster import Node
from deepopsctl.ssh.node_command import Answer as NodeAnswer
from tests.support.runs import TEXT, cluster_dir


def test_a_controller_without_an_answer_does_not_keep_the_accounting_from_being_saved_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_directory: object, _cluster: object, node: Node, *_: object, **__: object) -> NodeAnswer:
        if node.name == "ctl1":
            raise UnreachableError("ctl1 does not answer", "see `deepopsctl doctor`")
        return NodeAnswer(0, json.dumps({"parts": ["accounting"]}), "")

    monkeypatch.setattr(backup, "ask", ask)
    directory = cluster_dir(tmp_path, TEXT.replace("partitions", "  - {names: dbd1, roles: [dbd]}\npartitions"))

    for answers, error in (run_backup(directory), verify_backup(directory, "")):
        assert answers == (Answer("dbd1", {"parts": ["accounting"]}),)
        assert isinstance(error, UnreachableError)

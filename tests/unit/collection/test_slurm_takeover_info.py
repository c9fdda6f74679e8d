"""Secrets of a Slurm that is adopted: read by tasks with no_log alone, in no result, in a file of the owner's."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from tests.support.node_modules import plugin

FOUND = {"changed": False, "cluster": "hand", "secrets": {"StoragePass": "hunter2"}}


def action(directory: Path, monkeypatch: pytest.MonkeyPatch, *, no_log: bool) -> Any:
    module = plugin("action", "slurm_takeover_info")
    monkeypatch.setattr(ActionBase, "run", lambda *_options: {})
    monkeypatch.setattr(module.ActionModule, "_execute_module", lambda *_options, **_more: dict(FOUND))
    made = module.ActionModule.__new__(module.ActionModule)
    made._task = SimpleNamespace(args={"secrets": True, "directory": str(directory)}, no_log=no_log)
    return made


def test_without_no_log_they_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="no_log"):
        action(tmp_path, monkeypatch, no_log=False).run(task_vars={"inventory_hostname": "ctl1"})

    assert list(tmp_path.iterdir()) == []


def test_they_are_in_the_file_for_the_takeover_and_in_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = action(tmp_path, monkeypatch, no_log=True).run(task_vars={"inventory_hostname": "ctl1"})

    assert result == {"changed": False, "cluster": "hand"}
    assert json.loads((tmp_path / "ctl1.json").read_text()) == FOUND
    assert stat.S_IMODE((tmp_path / "ctl1.json").stat().st_mode) == 0o600

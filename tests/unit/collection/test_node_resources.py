"""What node_state remembers while it works, so that a run that is cut off loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside

node_record = nodeside.load("node.record")
removal = nodeside.load("node.removal")
resources = nodeside.load("node.resources")

UNIT = {"name": "a.service", "optional": False, "running": True, "restart_on": [], "port": None}
FILE: dict[str, Any] = {
    "mode": "0644", "owner": "root", "group": "root", "validate": [], "content": "new\n",
    "block": None, "secret_base64": None,
}  # fmt: skip


class Module:
    """What a step needs of AnsibleModule."""

    check_mode = False

    def __init__(self, **wanted: object) -> None:
        nothing: dict[str, Any] = {key: [] for key in ("packages", "units", "files", "kernel_modules", "directories")}
        self.params = {**nothing, "component": "test", "step": "test", **wanted}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_record, "STATE", str(tmp_path / "state"))


def test_a_restart_is_noted_before_the_file_that_asks_for_it_changes_and_done_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.conf")
    unit = {**UNIT, "restart_on": [path]}

    def cut_off(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(resources, "apply_file", cut_off)
        patched.setattr(resources.node_files, "owner_ids", lambda _owner, _group: (0, 0))
        with pytest.raises(KeyboardInterrupt):
            resources.ensure_file(resources.Step(Module()), {**FILE, "path": path}, [unit])
    assert node_record.is_pending("a.service")

    # nothing differs by now
    step = resources.Step(Module())
    monkeypatch.setattr(resources, "start_or_restart", lambda _step, _unit: True)
    resources.ensure_running(step, unit, {"ActiveState": "active", "UnitFileState": "enabled"}, [], False)
    assert step.actions == ["restarted a.service"]


def test_what_was_there_already_is_not_managed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = resources.Step(Module(packages=["old", "new"], units=[UNIT, {**UNIT, "name": "b.service"}]))
    monkeypatch.setattr(removal.node_packages, "installed", lambda _names: {"old": "1"})
    states = {"a.service": {"LoadState": "loaded"}, "b.service": {"LoadState": "not-found"}}
    monkeypatch.setattr(removal.node_services, "show", lambda _names: states)

    removal.Ownership(step).record_additions()

    assert (step.owned["packages"], step.owned["units"]) == (["new"], ["b.service"])

"""A server mounts its own file systems before it exports directories that are on them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deepopsctl.storage.node_plan import under_exports
from deepopsctl.storage.writer import variable
from tests.data.storage_samples import ADDRESSES, mounts
from tests.roles.content import load
from tests.support import node_modules as nodeside

node_mounts = nodeside.plugin("modules", "node_mounts")
filters = nodeside.plugin("filter", "storage")
CLUSTER = """\
schema: 1
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller]}
  - {names: "gpu[1-2]", addresses: "192.0.2.[11-12]", roles: [compute]}
storage:
  - {name: raid, type: local, source: LABEL=raid, path: /data, nodes: "ctl1,gpu1"}
  - {name: other, type: local, source: LABEL=other, path: /data2, nodes: ctl1}
  - {name: home, type: nfs, source: "ctl1:/data/home", path: /home, nodes: "compute,ctl1"}
"""


def test_only_the_servers_own_file_system_of_an_export_comes_before_it() -> None:
    assert under_exports(mounts(CLUSTER), "ctl1") == ["raid"]
    assert under_exports(mounts(CLUSTER), "gpu1") == []


def test_without_it_nothing_is_exported() -> None:
    plan = filters.storage_plan(variable(mounts(CLUSTER)), "ctl1", ADDRESSES, "Debian 13", "6.12", False, {}, "", {})

    (entry,) = plan["under_exports"]
    assert (entry["name"], entry["path"], entry["required"]) == ("raid", "/data", True)
    # what is required fails its node, and this comes before the role that exports
    play = next(play for play in load("playbooks/storage.yml") if play["name"] == "Create exported directories")
    imported = [
        task["ansible.builtin.import_role"] for task in play["pre_tasks"] if "ansible.builtin.import_role" in task
    ]
    assert imported == [{"name": "storage", "tasks_from": "before_exports"}]


def test_the_call_before_exports_changes_nothing_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    mounted: list[str] = []
    monkeypatch.setattr(node_mounts, "ensure_mount", lambda _step, mount: mounted.append(mount["path"]))
    for name in ("remove_unwanted", "write_files", "remove_files", "start_timers", "record"):
        monkeypatch.setattr(node_mounts, name, lambda _step, name=name: pytest.fail(f"{name} was called"))
    wanted: dict[str, Any] = {"only_missing": True, "mounts": [{"path": "/data"}, {"path": "/there"}]}

    node_mounts.converge(SimpleNamespace(wanted=wanted, table={"/there": None}, dry=False))

    assert mounted == ["/data"]

"""Which bare nodes a plan checks one of, and what is said of the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.run.events import Change
from deepopsctl.run.node_classes import Classes, added_sources, candidates, form, refused
from deepopsctl.run.questions import Replies
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.hardware import NodeHardware, store_hardware

SPEC = """\
schema: 1
cluster: {name: hpc, user: root}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: "gpu[01-03]", addresses: "192.0.2.[11-13]", roles: [compute], gpus: {type: a100, count: 2}}
  - {names: "cpu[01-02]", addresses: "192.0.2.[21-22]", roles: [compute]}
  - {names: "login[1-2]", addresses: "192.0.2.[31-32]", roles: [login]}
"""
SETTINGS = "inventory/group_vars/all/settings.yml"
DECLARED = dict.fromkeys(["gpu01", "gpu02", "gpu03"], ("gpu",))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "cluster.yml").write_text(SPEC, encoding="utf-8")
    (tmp_path / SETTINGS).parent.mkdir(parents=True)
    (tmp_path / SETTINGS).write_text("---\n# inventory_hostname\n", encoding="utf-8")
    return ClusterDir(tmp_path)


def same(directory: ClusterDir, **fields: Any) -> list[set[str]]:
    """Nodes that declare the same, several of them."""
    groups: dict[object, set[str]] = {}
    for name, key in candidates(RunRequest(directory, "slurm", **fields), directory.cluster()).items():
        groups.setdefault(key, set()).add(name)
    return [names for names in groups.values() if len(names) > 1]


def answer(**facts: Any) -> list[dict[str, Any]]:
    """What a node reports at first."""
    areas = facts.pop("areas", {"packages": "1"})
    report = {
        "areas": areas, "hostname": "host", "meminfo": "MemTotal: 1024 kB", "sources": 1, "unreachable": {},
        "room": [], **facts,
    }  # fmt: skip
    call = {"asked": {"before": 100.0, "after": 101.0}, "sudo": ""}
    return [{"deepops": {"node_class": report, "clock": {"begin": 100.2, "end": 100.8}, "call": call}}]


def classes(**answers: list[dict[str, Any]]) -> Classes:
    return form(DECLARED, Replies(answers))


class TestDeclared:
    def test_nodes_of_one_entry_of_cluster_yml_are_declared_the_same(self, directory: ClusterDir) -> None:
        assert same(directory) == [{"gpu01", "gpu02", "gpu03"}, {"cpu01", "cpu02"}, {"login1", "login2"}]

    def test_an_edited_cluster_yml_is_no_reason_to_check_all(self, directory: ClusterDir) -> None:
        directory.hosts.write_text("old", encoding="utf-8")

        assert len(same(directory, inventory="new")) == 3

    @pytest.mark.parametrize("text", ["x: gpu03", "x: 'gpu03:9100'", "x: gpu03.example.com", "x: 192.0.2.13"])
    def test_one_that_a_setting_names_is_alone(self, directory: ClusterDir, text: str) -> None:
        directory.settings.write_text(f"{text}\n", encoding="utf-8")

        assert {"gpu01", "gpu02"} in same(directory)

    def test_one_with_variables_of_its_own_is_alone(self, directory: ClusterDir) -> None:
        (directory.inventory_dir / "host_vars").mkdir()
        (directory.inventory_dir / "host_vars" / "gpu01.yml").write_text("x: 1\n", encoding="utf-8")

        assert {"gpu02", "gpu03"} in same(directory)

    def test_settings_that_only_ansible_can_work_out_leave_all_nodes_to_it(self, directory: ClusterDir) -> None:
        directory.settings.write_text("x: '{{ inventory_hostname[-1] }}'\n", encoding="utf-8")

        assert same(directory) == []
        assert same(directory, user_vars=({"x": "{{ hostvars }}"},)) == []

    def test_a_node_that_was_deployed_is_not_asked(self, directory: ClusterDir) -> None:
        (directory.runs).mkdir()
        (directory.runs / "desired.json").touch()
        hardware = NodeHardware(2, 1, 1, 2, 1, 900, cgroup="v2")
        store_hardware(directory.hardware, dict.fromkeys(["gpu01", "gpu02"], hardware))

        # of login nodes it is not known
        assert same(directory) == [{"cpu01", "cpu02"}]


class TestReported:
    def test_one_of_those_that_report_the_same_is_checked(self) -> None:
        result = classes(gpu03=answer(areas={"packages": "2"}), gpu02=answer(), gpu01=answer())

        # the first in cluster.yml, not the first to answer
        assert result.like == {"gpu02": "gpu01"}
        assert result.others == ("gpu03 is not the same as gpu01: packages",)
        assert result.variable() == {"gpu02": {"node": "gpu01", "meminfo": "MemTotal: 1024 kB"}}

    @pytest.mark.parametrize("other", [answer(areas={}), [{"deepops": {}}], answer(meminfo=1, room=3)])
    def test_one_with_a_deploy_or_without_a_good_answer_is_ansibles(self, other: list[dict[str, Any]]) -> None:
        assert classes(gpu01=answer(), gpu02=other).like == {}

    def test_what_stops_a_deploy_is_reported_at_once_and_another_node_is_checked(self) -> None:
        away = {"http://mirror.example.com/": "timed out"}
        result = classes(gpu01=answer(unreachable=away), gpu02=answer(), gpu03=answer(room=["/var is read-only"]))

        assert result.like == {"gpu01": "gpu02", "gpu03": "gpu02"}
        assert [(each.nodes, each.message) for each in result.blocked] == [
            (("gpu01",), "none of its package sources answers: http://mirror.example.com/: timed out"),
            (("gpu03",), "/var is read-only"),
        ]

    def test_one_of_several_sources_is_a_warning(self) -> None:
        result = classes(gpu01=answer(sources=2, unreachable={"http://a/": "timed out"}))

        assert result.blocked == ()
        assert [each.message for each in result.warnings] == ["the package source http://a/ does not answer: timed out"]

    def test_a_wrong_clock_is_a_warning(self) -> None:
        late = answer()
        late[0]["deepops"]["clock"] = {"begin": 400.0, "end": 400.5}

        (warning,) = classes(gpu01=late).warnings

        assert warning.message == "its clock is at least 300 s ahead of this machine's"


def test_what_the_gate_would_refuse_is_each_nodes_own_answer() -> None:
    reports = {
        "gpu02": {"refusals": [{"message": "Python is too old", "hint": "a newer"}], "unmet": [], "unreachable": {}},
        "gpu03": {"refusals": [], "unmet": [{"message": "/opt/x is not there"}], "unreachable": {"http://n/": "no"}},
    }
    blocked, away = refused({name: [{"deepops": {"node_class": report}}] for name, report in reports.items()})

    assert [(each.nodes, each.message) for each in blocked] == [
        (("gpu02",), "Python is too old"),
        (("gpu03",), "/opt/x is not there"),
    ]
    assert [each.message for each in away] == ["no way to http://n/ (no): what comes from it will be left out"]


def test_the_sources_that_a_node_would_get_are_in_its_files() -> None:
    stanza = "@@ -0,0 +1,3 @@\n+Types: deb\n+URIs: https://a.example.com/x\n+Suites: /\n"
    line = "+deb [signed-by=/k.gpg] https://b.example.com/y /\n-deb https://old.example.com z\n"
    changes = [
        Change("gpu01", "nvidia", "file", name, "write", diff=diff) for name, diff in (("a", stanza), ("b", line))
    ]

    assert added_sources(changes, "gpu01") == {"https://a.example.com/x", "https://b.example.com/y"}
    assert added_sources(changes, "gpu02") == set()

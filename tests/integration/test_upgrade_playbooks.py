"""Playbooks of `upgrade slurm` in real ansible-core, with stand-ins for its modules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.local_ansible import play
from tests.support.paths import ROOT


def test_only_nodes_whose_packages_are_replaced_take_jobs_again(tmp_path: Path) -> None:
    _drain, *plays = yaml.safe_load((ROOT / "playbooks/operate/upgrade/upgrade-nodes.yml").read_text(encoding="utf-8"))
    (_leave_out, replacing, _note), (resuming,) = (each["tasks"] for each in plays)
    del replacing["deepopsctl.cluster.node_state"]
    replacing["ansible.builtin.assert"] = {"that": "inventory_hostname != 'cn2'"}
    resuming["ansible.builtin.debug"] = {"msg": resuming.pop("deepopsctl.cluster.node_program")["input"]["nodes"]}
    starting = {"deepops": {"starting": {"cn3": "job 7"}}}
    nodes = {"slurm_controller_hosts": ["ctl1"], "deepops_upgrade_drained": starting}
    key = "slurm_{{ 'compute' if 'cn' in inventory_hostname else 'controller' }}"
    groups = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.group_by": {"key": key}}]}
    batch = json.dumps({"deepops_upgrade_nodes": ["cn1", "cn2", "cn3"]})

    played = play(
        tmp_path,
        [groups, *({**each, "become": False} for each in plays)],
        dict.fromkeys(("ctl1", "cn1", "cn2", "cn3"), nodes),
        "-e",
        batch,
    )

    name = "Wait until the nodes have registered, and let jobs start there"
    assert played.result(name).data["msg"] == ["cn1"], played.output


@pytest.mark.parametrize(("answer", "status"), [({"deepops": {"converting": True}}, "skipped"), ({}, "ok")])
def test_a_slurmdbd_that_converts_its_tables_is_not_stopped(
    tmp_path: Path, answer: dict[str, object], status: str
) -> None:
    *_, stopping = yaml.safe_load((ROOT / "playbooks/operate/upgrade/upgrade-stop.yml").read_text(encoding="utf-8"))
    query, stop = stopping["tasks"]
    for task in (query, stop):
        task["ansible.builtin.debug"] = {"msg": task.pop("deepopsctl.cluster.node_program", "")}
    del stop["ansible.builtin.systemd_service"]
    answers = ["-e", json.dumps({query["register"]: answer})] if answer else []

    played = play(tmp_path, [{**stopping, "hosts": "all", "become": False}], {"dbd1": {}}, *answers)

    assert played.result("Stop slurmdbd").status == status, played.output

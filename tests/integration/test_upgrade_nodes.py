"""What `upgrade slurm` does with the nodes of a batch, in real ansible-core; its modules are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.local_ansible import play
from tests.support.paths import ROOT


def test_only_nodes_whose_packages_are_replaced_take_jobs_again(tmp_path: Path) -> None:
    _drain, *plays = yaml.safe_load((ROOT / "playbooks" / "operate" / "upgrade-nodes.yml").read_text(encoding="utf-8"))
    replacing, resuming = (tasks[-1] if len(tasks) == 1 else tasks[1] for tasks in (each["tasks"] for each in plays))
    del replacing["deepopsctl.cluster.node_state"]
    replacing["ansible.builtin.assert"] = {"that": "inventory_hostname != 'cn2'"}
    resuming["ansible.builtin.debug"] = {"msg": resuming.pop("deepopsctl.cluster.node_program")["input"]["nodes"]}
    starting = {"deepops": {"drain": {"drained": ["cn1", "cn2"], "starting": {"cn3": "job 7"}}}}
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

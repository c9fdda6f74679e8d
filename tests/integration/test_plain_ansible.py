"""Plain Ansible, by ansible.cfg and the inventories in this repository, sees what deepopsctl's runs see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from deepopsctl.run.request import RunRequest, write_inputs
from tests.integration.sites import Site
from tests.support.local_ansible import play
from tests.support.paths import ROOT

BIN = Path(sys.executable).parent
# where an inventory was read from differs, of course
OF_THE_PLACE = {"inventory_dir", "inventory_file"}


def host_variables(vault_password: Path, *inventories: Path) -> dict[str, Any]:
    sources = [word for path in inventories for word in ("-i", str(path))]
    line = [str(BIN / "ansible-inventory"), *sources, "--list"]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_VAULT_PASSWORD_FILE": str(vault_password)}
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    hostvars: dict[str, Any] = json.loads(done.stdout)["_meta"]["hostvars"]
    return {host: {k: v for k, v in values.items() if k not in OF_THE_PLACE} for host, values in hostvars.items()}


def test_plain_ansible_and_a_run_see_the_same_variables(site: Site, tmp_path: Path) -> None:
    directory = site.directory
    write_inputs(RunRequest(directory, "slurm"), {}, ROOT, tmp_path / "private")
    staged = host_variables(directory.vault_password, tmp_path / "private" / "inventory" / "hosts.yml", directory.hosts)
    plain = host_variables(directory.vault_password, ROOT / "inventory" / "product" / "hosts.yml", directory.hosts)
    assert plain == staged
    assert set(plain) == {"ctl1", "n1", "n2"}
    assert plain["n1"]["colour"] == "site"
    assert "slurm_config" in plain["n1"], "the product's variables are missing"


def test_the_products_inventory_has_every_group() -> None:
    line = [str(BIN / "ansible-inventory"), "-i", "inventory/product/hosts.yml", "--graph", "slurm_cluster"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    from deepopsctl.cluster.inventory import GROUPS

    assert [group for group in GROUPS if f"@{group}:" not in shown] == []


OLD = "slurm_time_servers: [ntp1]\n"
READ = """
- name: Read it by its new name
  ansible.builtin.assert: {that: "node_common_time_servers == ['ntp2' if inventory_hostname == 'n1' else 'ntp1']"}
"""


def test_a_setting_with_its_old_name_works_in_a_run(site: Site) -> None:
    with site.directory.settings.open("a") as stream:
        stream.write(OLD)
    of_node = site.directory.inventory_dir / "host_vars" / "n1.yml"
    of_node.parent.mkdir(exist_ok=True)
    of_node.write_text("slurm_time_servers: [ntp2]\n")

    assert site.run(READ).summary.failures == ()


def test_plain_ansible_says_what_it_is_called_now(tmp_path: Path) -> None:
    task = {"name": "Show", "ansible.builtin.debug": {"msg": "{{ deepops_requires }}"}}
    old = yaml.safe_load(OLD)
    # in a run only what it could not read: of the first controller
    run_of = {**old, "deepops_run_id": "1", "slurm_controller_hosts": ["ctl1"]}
    hosts = {"n1": old, "n2": {"node_common_time_servers": ["ntp1"]}, "ctl1": run_of, "n3": run_of}
    done = play(tmp_path, [{"hosts": "all", "gather_facts": False, "tasks": [task]}], hosts)
    statuses = {result.host: result.status for result in done.results}
    assert statuses == {"n1": "failed", "n2": "ok", "ctl1": "failed", "n3": "ok"}
    assert "slurm_time_servers is now node_common_time_servers: rename it in settings.yml" in done.output

"""Plain Ansible, by ansible.cfg and the inventories in this repository, sees what deepopsctl's runs see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from deepopsctl.run.request import RunRequest, write_inputs
from tests.integration.sites import Site
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

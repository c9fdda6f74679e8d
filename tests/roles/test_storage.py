"""The component storage records what its gate expects, and comes before the daemons that wait for it."""

from __future__ import annotations

from typing import Any

import jinja2.nativetypes
import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.storage.writer import variable
from tests.roles.content import load, steps_of
from tests.support import node_modules as nodeside

CLUSTER = """\
schema: 1
nodes:
  - {names: ctl1, roles: [controller]}
  - {names: "gpu[1-2]", roles: [compute]}
storage:
  - {name: home, type: nfs, source: "ctl1:/srv/home", path: /home}
  - {name: work, type: beegfs, source: beegfs.example.com, path: /work, nodes: gpu2, beegfs: {version: "8.3"}}
"""
# only where a client belongs to the kernel
CLIENTS = "clients"


def expected(host: str, cluster: str = CLUSTER) -> set[str]:
    """The steps that the gate wants of a node."""
    settings = load("group_vars/all/storage.yml")
    environment = jinja2.nativetypes.NativeEnvironment()
    filters = nodeside.plugin("filter", "storage").FilterModule().filters()
    environment.filters |= {f"deepopsctl.cluster.{name}": function for name, function in filters.items()}
    known: dict[str, Any] = {
        "storage_mounts": variable(parse_spec(cluster, "cluster.yml").storage),
        "inventory_hostname": host,
        "group_names": ["storage_nodes"],
        "deepops_address_of": {"ctl1": "192.0.2.1", "gpu1": "192.0.2.2", "gpu2": "192.0.2.3"},
    }
    for name in ("deepops_storage_serves", "deepops_storage_steps"):
        known[name] = environment.from_string(settings[name]).render(known)
    return set(known["deepops_storage_steps"])


@pytest.mark.parametrize(
    ("host", "roles", "others"),
    [
        ("gpu1", ["storage"], {CLIENTS}),
        ("gpu2", ["storage"], set()),
        ("ctl1", ["storage", "nfs_server", "storage_quota"], {CLIENTS}),
    ],
)
def test_the_gate_expects_what_is_recorded(host: str, roles: list[str], others: set[str]) -> None:
    assert expected(host) == set().union(*(steps_of(role) for role in roles)) - others


def test_a_host_whose_directory_nobody_mounts_gets_no_nfs_server() -> None:
    nowhere = CLUSTER.replace("path: /home}", "path: /home, nodes: ctl1}")

    assert expected("ctl1", nowhere) == steps_of("storage") - {CLIENTS}


def test_storage_is_there_before_slurm_is() -> None:
    order = [entry["ansible.builtin.import_playbook"] for entry in load("playbooks/site.yml")]

    assert order.index("storage.yml") < order.index("slurm.yml")

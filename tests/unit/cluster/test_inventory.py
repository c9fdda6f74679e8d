"""The Ansible inventory made from a cluster: groups, variables, and the text of hosts.yml."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from deepopsctl.cluster.inventory import build_inventory, render_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.ssh_login import CONFINED
from deepopsctl.model.cluster import Cluster
from deepopsctl.text.node_sets import expand, pair
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.values import check_name

TEXT = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: "ctl[1-2]", addresses: "192.0.2.[1-2]", roles: [controller]}
  - {names: "gpu[01-02]", addresses: "192.0.2.12,192.0.2.11", roles: [compute], gpus: {type: h100, count: 8}}
  - {names: cpu1, roles: [compute], port: 2222, features: [big], slurm: {Weight: 5, MemSpecLimit: 1024}}
  - {names: "gpu[05-06]", roles: [compute], gpus: {type: h100, count: 8}}
  - {names: login1, addresses: "2001:db8::5", roles: [login, monitoring]}
partitions:
  - {name: gpu, nodes: "gpu[05-06],gpu[01-02]", default: true, max_time: 1-00:00:00}
  - {name: all-nodes, nodes: all, options: {OverSubscribe: NO}}
"""


@pytest.fixture
def cluster() -> Cluster:
    return parse_spec(TEXT, "cluster.yml")


def variables(cluster: Cluster) -> Any:
    return yaml.safe_load(render_inventory(cluster))["all"]["vars"]


def test_the_text_reads_back_as_what_was_built(cluster: Cluster) -> None:
    assert yaml.safe_load(render_inventory(cluster)) == build_inventory(cluster)


def test_no_node_has_the_name_of_a_group(cluster: Cluster) -> None:
    inventory: Any = build_inventory(cluster)

    for name in ("slurm_cluster", *inventory["all"]["children"]["slurm_cluster"]["children"]):
        with pytest.raises(RefusedError, match="has a meaning of its own"):
            check_name(name)


def test_hosts_carry_only_what_differs_between_them(cluster: Cluster) -> None:
    hosts = yaml.safe_load(render_inventory(cluster))["all"]["hosts"]
    assert hosts["gpu01"] == {"ansible_host": "192.0.2.12"}
    assert hosts["cpu1"] == {"ansible_port": 2222}
    assert hosts["gpu05"] is None
    assert hosts["login1"] == {"ansible_host": "2001:db8::5"}


def test_folds_identical_compute_nodes_into_one_entry(cluster: Cluster) -> None:
    assert variables(cluster)["slurm_nodes"] == [
        {"names": "gpu[01-02,05-06]", "gpus": {"type": "h100", "count": 8}},
        {"names": "cpu1", "features": ["big"], "slurm": {"Weight": "5", "MemSpecLimit": "1024"}},
    ]


def test_partitions_are_folded_and_complete(cluster: Cluster) -> None:
    assert variables(cluster)["slurm_partitions"] == [
        {"name": "gpu", "nodes": "gpu[01-02,05-06]", "default": True, "max_time": "1-00:00:00", "options": {}},
        {
            "name": "all-nodes",
            "nodes": "cpu1,gpu[01-02,05-06]",
            "default": False,
            "max_time": "",
            "options": {"OverSubscribe": "NO"},
        },
    ]


def test_addresses_are_paired_in_order(cluster: Cluster) -> None:
    (entry,) = variables(cluster)["deepops_addresses"]
    assert pair(entry["names"], entry["addresses"]) == (
        ("ctl1", "192.0.2.1"),
        ("ctl2", "192.0.2.2"),
        ("gpu01", "192.0.2.12"),
        ("gpu02", "192.0.2.11"),
        ("login1", "2001:db8::5"),
    )


def test_ssh_uses_the_clusters_own_key_and_pinned_host_keys(cluster: Cluster) -> None:
    values = variables(cluster)
    assert values["ansible_user"] == "ubuntu"
    assert values["ansible_ssh_private_key_file"] == "{{ inventory_dir }}/../ssh/id_ed25519"
    arguments = values["ansible_ssh_common_args"]
    assert arguments.startswith(
        "-o 'UserKnownHostsFile=\"{{ inventory_dir }}/../known_hosts\"' -o StrictHostKeyChecking=yes "
    )
    assert {f"{name}={value}" for name, value in CONFINED.items()} <= set(shlex.split(arguments))


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("/home/me/.ssh/id", "/home/me/.ssh/id"),
        ("~/.ssh/id", "~/.ssh/id"),
        ("keys/id", "{{ inventory_dir }}/../keys/id"),
    ],
)
def test_a_key_of_ones_own_is_found_from_the_cluster_directory(key: str, written: str) -> None:
    cluster = parse_spec(TEXT.replace("user: ubuntu", f"key: {key}"), "cluster.yml")
    assert variables(cluster)["ansible_ssh_private_key_file"] == written


def test_reaches_the_nodes_through_a_jump_host_and_a_port() -> None:
    text = TEXT.replace("user: ubuntu", "jump_host: me@gate.example.com, port: 2022")
    values = variables(parse_spec(text, "cluster.yml"))
    assert "-o 'ProxyCommand=ssh " in values["ansible_ssh_common_args"]
    assert values["ansible_ssh_common_args"].endswith(" -W [%h]:%p -l me -- gate.example.com'")
    assert values["ansible_port"] == 2022
    assert "ansible_user" not in values


@pytest.mark.parametrize("word", ["no", "on", "null", "1e3", "0x10", "0o7", "1_000", "012", "y", "1-1"])
def test_words_that_yaml_would_misread_stay_words(word: str) -> None:
    text = TEXT.replace("features: [big]", f'features: ["{word}"]')
    text = text.replace("name: hpc", f'name: "{word}"')
    values = variables(parse_spec(text, "cluster.yml"))
    assert values["deepops_cluster_name"] == word
    assert values["slurm_nodes"][1]["features"] == [word]


def test_ten_thousand_scattered_addresses_stand_once_in_readable_entries() -> None:
    addresses = ",".join(f"10.{n * 37 % 200}.{n % 199}.{n * 7 % 250 + 1}" for n in range(10_000))
    text = (
        "schema: 1\nnodes:\n  - {names: ctl1, roles: [controller]}\n"
        f'  - {{names: "n[00000-09999]", addresses: "{addresses}", roles: [compute]}}\n'
    )
    inventory = yaml.load(render_inventory(parse_spec(text, "cluster.yml")), Loader=yaml.CSafeLoader)
    assert len(str(inventory["all"]["vars"])) < 2_000
    entries = inventory["all"]["hosts"]["ctl1"]["deepops_shared"]["deepops_addresses"]
    assert max(len(entry["addresses"]) for entry in entries) < 200
    assert [name for entry in entries for name in expand(entry["names"])] == [f"n{n:05d}" for n in range(10_000)]
    assert [a for entry in entries for a in expand(entry["addresses"])] == addresses.split(",")


@pytest.mark.parametrize(
    ("listed", "is_wanted"), [("components: [slurm, web]\n", True), ("components: [slurm]\n", False), ("", False)]
)
def test_web_pages_are_where_the_cluster_lists_them(listed: str, is_wanted: bool) -> None:
    values = variables(parse_spec(TEXT + listed, "cluster.yml"))

    assert ("deepops_web_listed" in values) is is_wanted

"""`init --from` with node lists as NetBox, MAAS, Terraform, OpenCHAMI and Warewulf write them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.imports.request import InitRequest, read_request
from deepopsctl.model.cluster import Cluster, Role
from tests.support.problems import faults as faults_of

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "node_sources"
NODES = {"ctl1": ("192.0.2.1", "controller"), "gpu01": ("192.0.2.11", "compute"), "gpu02": ("192.0.2.12", "compute")}
CTL1 = ("ctl1=192.0.2.1",)
NETBOX = ("controller=device_roles_slurm-controller", "compute=device_roles_gpu-node")


def read(name: str, **options: Any) -> Cluster:
    return read_request(InitRequest(Path("hpc"), source=SAMPLES / name, **options)).cluster


def nodes_of(cluster: Cluster) -> dict[str, tuple[str, str]]:
    return {
        node.name: (node.address, "+".join(sorted(node.roles & {Role.CONTROLLER, Role.COMPUTE})))
        for node in cluster.nodes
    }


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("netbox.json", {"group": NETBOX}),
        ("terraform.yml", {}),
        ("nodes.conf", {"controller": CTL1}),
        ("nodes.yaml", {"controller": CTL1}),
        ("nodes.yaml", {"controller": CTL1, "group": ("compute=compute",)}),
    ],
)
def test_reads_names_addresses_and_roles(name: str, options: dict[str, tuple[str, ...]]) -> None:
    assert nodes_of(read(name, **options)) == NODES


def test_full_names_of_maas_are_addresses() -> None:
    nodes = nodes_of(read("maas.json", controller=("ctl1",)))
    assert nodes == {
        "ctl1": ("ctl1.maas", "controller"),
        "gpu01": ("gpu01.maas", "compute"),
        "gpu02": ("gpu02.maas", "compute"),
    }


def test_smds_compute_nodes_are_compute_nodes_and_its_interfaces_have_the_addresses() -> None:
    request = InitRequest(
        Path("hpc"), source=SAMPLES / "components.json", controller=CTL1,
        addresses=SAMPLES / "interfaces.json",
    )  # fmt: skip
    result = read_request(request)
    assert nodes_of(result.cluster) == {
        "ctl1": NODES["ctl1"],
        "x1000c0s0b0n0": ("192.0.2.11", "compute"),
        "x1000c0s0b1n0": ("192.0.2.12", "compute"),
    }
    assert [note.name for note in result.carryover.not_carried if "x1000c0s9b0n0" in note.name]


def test_smds_interfaces_alone_are_a_node_list() -> None:
    nodes = nodes_of(read("interfaces.json", controller=CTL1))
    assert nodes == {
        "ctl1": NODES["ctl1"],
        "x1000c0s0b0n0": ("192.0.2.11", "compute"),
        "x1000c0s0b1n0": ("192.0.2.12", "compute"),
    }


def test_what_all_hosts_of_a_json_inventory_share_is_a_setting_of_the_cluster() -> None:
    text = b"""{"_meta": {"hostvars": {
        "ctl1": {"ansible_host": "192.0.2.1", "ansible_user": "ops", "slurm_cluster_name": "alpha"},
        "gpu01": {"ansible_host": "192.0.2.11", "ansible_user": "ops", "slurm_cluster_name": "alpha"}}},
        "slurm-master": {"hosts": ["ctl1"]}, "slurm-node": ["gpu01"]}"""
    cluster = read_request(InitRequest(Path("hpc"), stdin=io.BytesIO(text))).cluster
    assert (cluster.name, cluster.access.user) == ("alpha", "ops")


def test_an_inventory_without_hosts_says_where_to_look_first() -> None:
    text = b'{"_meta": {"hostvars": {}}, "all": {"children": ["ungrouped"]}}'
    refused = faults_of(lambda: read_request(InitRequest(Path("hpc"), stdin=io.BytesIO(text), group=("compute=a",))))
    assert refused[0] == "stdin: ansible-inventory printed no hosts"


def test_a_json_inventory_that_ends_too_early_is_refused_with_its_line() -> None:
    text = b'{"_meta": {"hostvars": {\n"ctl1": {'
    assert faults_of(lambda: read_request(InitRequest(Path("hpc"), stdin=io.BytesIO(text))))[0].startswith(
        "stdin:2: not valid JSON: "
    )

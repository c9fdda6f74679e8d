"""What `init` makes of its options and of a node list beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepopsctl.gpus.gres import describe_gpus
from deepopsctl.imports.request import InitRequest, read_request
from deepopsctl.model.cluster import Cluster, Gpus, Role
from tests.support.problems import faults as faults_of

BASE: dict[str, Any] = {"controller": ("ctl1",), "compute": ("n[1-2]",)}


def cluster(**options: Any) -> Cluster:
    return read_request(InitRequest(Path("hpc"), **{**BASE, **options})).cluster


def faults(**options: Any) -> list[str]:
    return faults_of(cluster, **options)


def gpus(made: Cluster) -> dict[str, Gpus | None]:
    return {node.name: node.gpus for node in made.nodes}


def node_list(directory: Path, text: str) -> Path:
    path = directory / "nodes.txt"
    path.write_text(text)
    return path


def test_nodes_keep_the_order_of_roles_and_options() -> None:
    made = cluster(compute=("n[3-4]", "n[1-2]"), login=("login1",))
    assert [node.name for node in made.nodes] == ["ctl1", "n3", "n4", "n1", "n2", "login1"]


def test_a_node_named_for_two_roles_has_both() -> None:
    (node,) = cluster(controller=("all-in-one=192.0.2.1",), compute=("all-in-one",), nfs_server=("all-in-one",)).nodes
    assert node.roles == {Role.CONTROLLER, Role.COMPUTE, Role.NFS_SERVER}
    assert node.address == "192.0.2.1"


@pytest.mark.parametrize(
    ("options", "actual"),
    [
        ({"controller": ()}, ["init: no node has the role controller"]),
        ({"compute": ()}, ["init: no node has the role compute"]),
        ({"compute": ("n1,n1",)}, ["--compute: n1 is given twice"]),
        ({"compute": ("n1", "n1")}, ["--compute: n1 is given twice"]),
        ({"compute": ("n1=",)}, ["--compute: n1=: no address after ="]),
        ({"compute": ("=192.0.2.1",)}, ["--compute: no names are given"]),
        ({"compute": ("{{ x }}",)}, ["--compute: the template marker {{ is not allowed"]),
        ({"compute": ("n1=192.0.2.1", "n2=192.0.2.1")}, ["--compute: n2 has the address 192.0.2.1 of n1 at --compute"]),
        (
            {"controller": ("m1=192.0.2.1",), "compute": ("m1=192.0.2.2",)},
            ["--compute: m1 has the address 192.0.2.2 here, but 192.0.2.1 at --controller"],
        ),
        ({"login": ("gpu1-",)}, ["--login: 'gpu1-' is not a valid hostname"]),
        (
            {"monitoring": ("m.example.com",)},
            ["--monitoring: m.example.com has a domain, but Slurm knows nodes by their short names"],
        ),
        ({"gpus": ("h100",)}, ["--gpus: 'h100' is not [NODESET:]TYPE:COUNT"]),
        ({"gpus": ("a:b:c:1",)}, ["--gpus: 'a:b:c:1' is not [NODESET:]TYPE:COUNT"]),
        ({"gpus": (":8",)}, ["--gpus: ':8' is not [NODESET:]TYPE:COUNT"]),
        ({"gpus": ("h100:0",)}, ["--gpus: '0' is not a number of GPUs"]),
        ({"gpus": ("n9:h100:8",)}, ["--gpus: n9: no node n9"]),
        ({"gpus": ("h100:8", "h100:4")}, ["--gpus: h100 is given twice"]),
        ({"gpus": ("n1:h100:8", "n[1-2]:h100:8")}, ["--gpus: h100 is given twice"]),
        ({"gpus": ("n[1,1]:h100:8",)}, ["--gpus: n[1,1] names a node twice"]),
        ({"gpus": ("h100:200", "a100:200")}, ["--gpus: more than 256 GPUs in one node"]),
        (
            {"gpus": ("ctl1:h100:8",)},
            ["--controller: ctl1 with gpus, features or slurm keys, but without the role compute"],
        ),
        ({"name": "My Cluster"}, ["--name: 'My Cluster' can't be a cluster's name"]),
        ({"user": "a b"}, ["--user: 'a b' is not a login name"]),
        ({"port": "0x16"}, ["--port: '0x16' is not a valid port"]),
        ({"jump_host": "a b"}, ["--jump-host: 'a b' is not a valid jump host"]),
        ({"ssh_key": "/nowhere/id"}, ["--ssh-key: /nowhere/id: no such file"]),
        ({"ssh_key": "/nowhere/id.pub"}, ["--ssh-key: /nowhere/id.pub is the public half of a key"]),
    ],
)
def test_refuses_a_bad_option_by_its_name(options: dict[str, Any], actual: list[str]) -> None:
    assert faults(**options) == actual


def test_reports_the_faults_of_options_and_file_at_once(tmp_path: Path) -> None:
    path = node_list(tmp_path, "n1\nn2-\n")
    assert faults(source=path, controller=("ctl[1-",), compute=(), gpus=("x",), port="ssh") == [
        "--controller: ctl[1-: a bracket is not closed",
        "--gpus: 'x' is not [NODESET:]TYPE:COUNT",
        "--port: 'ssh' is not a valid port",
        f"{path}:2: 'n2-' is not a valid hostname",
    ]


def test_an_address_that_is_no_nodes_is_refused_with_its_file(tmp_path: Path) -> None:
    path = node_list(tmp_path, "192.0.2.1 ctl1\nfe80::2%eth0 n1\nfe80::3 n2\n")

    assert faults(addresses=path) == [
        f"{path}: n1: fe80::2%eth0 is not the address of one host",
        f"{path}: n2: fe80::3 is not the address of one host",
    ]


def test_what_is_said_of_a_node_several_times_are_several_kinds() -> None:
    made = cluster(gpus=("a40:2", "l40s:2", "n2:h100:4"))
    assert {node.name: describe_gpus(node.gpus) for node in made.nodes if node.gpus} == {
        "n1": "a40:2+l40s:2",
        "n2": "h100:4",
    }


def test_gpus_of_file_and_option_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("name,role,gpus,gpu_type\nctl1,controller,,\nn1,compute,8,h100\n")
    nothing: dict[str, Any] = {"controller": (), "compute": (), "source": path}
    assert gpus(cluster(**nothing, gpus=("n1:h100:8",)))["n1"] == Gpus("h100", 8)
    assert faults(**nothing, gpus=("n1:a100:4",)) == [f"--gpus: n1 has h100:8 at {path}:3"]


def test_a_list_without_roles_holds_compute_nodes(tmp_path: Path) -> None:
    path = node_list(tmp_path, "ctl1=192.0.2.1\nn[1-2]\nlogin1\n")
    made = cluster(source=path, compute=(), login=("login1",))
    assert [node.name for node in made.compute] == ["n1", "n2"]
    assert made.controllers[0].address == "192.0.2.1"


def test_with_compute_given_other_nodes_of_a_list_are_left_out_and_named(tmp_path: Path) -> None:
    path = node_list(tmp_path, "192.0.2.1 ctl1\n192.0.2.2 n1\n192.0.2.3 printer\n192.0.2.4 n2\n")
    result = read_request(InitRequest(Path("hpc"), source=path, **BASE))
    assert result.left_out == ("printer",)
    assert [(node.name, node.address) for node in result.cluster.compute] == [("n1", "192.0.2.2"), ("n2", "192.0.2.4")]


def test_options_add_to_a_cluster_file_and_win_over_its_header(tmp_path: Path) -> None:
    text = (
        "schema: 1\ncluster: {name: old, user: me, key: keys/id}\nnodes:\n"
        "  - {names: ctl1, roles: [controller]}\n  - {names: n1, roles: [compute]}\n"
        "partitions: [{name: p, nodes: all, max_time: 60}]\n"
    )
    path = node_list(tmp_path, text)
    made = cluster(source=path, controller=(), compute=("n2",), login=("ctl1",), name="new", user="ubuntu")
    assert (made.name, made.access.user) == ("new", "ubuntu")
    assert made.access.key == str(tmp_path / "keys" / "id")
    assert made.controllers[0].roles == {Role.CONTROLLER, Role.LOGIN}
    assert made.partitions[0].nodes == ("n1", "n2")
    node_list(tmp_path, text.replace("keys/id", "~/.ssh/id"))
    assert cluster(source=path, controller=(), compute=()).access.key == "~/.ssh/id"


@pytest.mark.parametrize(
    ("directory", "name"),
    [("hpc", "hpc"), ("My Cluster.2", "my-cluster-2"), ("---", "cluster"), ("x" * 60, "x" * 40)],
)
def test_a_cluster_is_named_after_its_directory(directory: str, name: str) -> None:
    assert read_request(InitRequest(Path(directory), **BASE)).cluster.name == name


def test_writes_the_absolute_path_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "id").write_text("")
    monkeypatch.chdir(tmp_path)
    assert cluster(ssh_key="id").access.key == str(tmp_path / "id")

"""Which nodes a lab gets, what is refused, and the node list written for `init`."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from deepopsctl.cluster.builder import Draft
from deepopsctl.errors import InputError
from deepopsctl.imports.read import draft_yaml
from deepopsctl.lab.layout import (
    LabRequest,
    check_name,
    contradictions,
    in_order,
    parse_gpus,
    plan_nodes,
    render_node_list,
)
from deepopsctl.model.cluster import Gpus, Role
from deepopsctl.text.problems import Problems

NETWORK = IPv4Network("192.0.2.0/24")
H100 = Gpus("h100", 2)


def read(text: str) -> Draft:
    """What `init --from` makes of a node list."""
    return draft_yaml(text, "nodes.yml", Problems())


def test_compute_nodes_without_gpus_are_called_cn() -> None:
    nodes = plan_nodes(LabRequest("lab", compute=2, login=1))
    assert [node.name for node in nodes] == ["ctl1", "cn01", "cn02", "login1"]
    assert [node.role for node in nodes] == [Role.CONTROLLER, Role.COMPUTE, Role.COMPUTE, Role.LOGIN]


def test_a_single_machine_is_controller_and_compute_node_with_the_gpus() -> None:
    (node,) = plan_nodes(LabRequest("lab", compute=2, login=0, gpus=H100, single=True))
    (listed,) = read(render_node_list("lab", "ubuntu", [(node, "192.0.2.10")])).finish().nodes

    assert node.roles == (Role.CONTROLLER, Role.COMPUTE)
    assert listed.roles == {Role.CONTROLLER, Role.COMPUTE}
    assert listed.gpus == H100


def test_every_node_of_the_largest_lab_has_an_address_of_its_own() -> None:
    addresses = {node.address(NETWORK) for node in plan_nodes(LabRequest("lab", compute=150, login=80))}
    assert len(addresses) == 231
    assert all(address in NETWORK for address in addresses)


def test_nodes_added_later_stand_with_their_kind() -> None:
    first = plan_nodes(LabRequest("lab", compute=1, login=1))
    later = plan_nodes(LabRequest("lab", compute=2, login=1))
    assert in_order(first + tuple(node for node in later if node not in first)) == later


def test_gpus_are_a_type_and_a_count() -> None:
    assert parse_gpus("h100:8") == Gpus("h100", 8)


@pytest.mark.parametrize("text", ["h100", "h100:", ":2", "h100:two", "h100:0", "h100:17", "H 100:2", "h100:²", "a:1:2"])
def test_other_gpus_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"simulated GPUs|is not TYPE:COUNT"):
        parse_gpus(text)


@pytest.mark.parametrize("name", ["", "Lab", "1lab", "a/b", "..", "a" * 32, "a\n"])
def test_names_that_would_not_serve_as_container_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a lab"):
        check_name(name)


def test_what_a_running_lab_cannot_become_is_said_in_one_go() -> None:
    request = LabRequest("lab", compute=2, login=0, os="debian12", gpus=Gpus("a100", 4), sudo_asks=True, single=True)
    problems = contradictions(request, os="debian13", gpus=H100, sudo_asks=False, single=False)
    assert [problem.where for problem in problems] == ["--os", "--gpus", "--single", "--sudo-password"]
    assert "h100:2" in problems[1].message
    assert all("lab down --name lab" in problem.hint for problem in problems)


def test_a_request_that_leaves_things_open_contradicts_nothing() -> None:
    request = LabRequest("lab", compute=3, login=0)
    assert contradictions(request, os="sid", gpus=H100, sudo_asks=True, single=False) == ()


def test_a_lab_is_watched_only_where_that_was_asked_for() -> None:
    node = (plan_nodes(LabRequest("lab", compute=1, login=0))[0], "192.0.2.10")
    settings = {asked: read(render_node_list("lab", "ubuntu", [node], monitoring=asked)) for asked in (True, False)}

    assert settings[True].carryover.direct_settings == {
        "monitoring_enabled": True,
        "grafana_enabled": False,
        "monitoring_gpu_exporter": "none",
    }
    assert settings[False].carryover.direct_settings == {"monitoring_enabled": False}


def test_the_node_list_is_one_that_init_reads_with_gpus_in_compute_nodes_alone() -> None:
    nodes = plan_nodes(LabRequest("lab", compute=2, login=1, gpus=H100))
    text = render_node_list("lab", "ubuntu", [(node, str(node.address(NETWORK))) for node in nodes])
    cluster = read(text).finish()
    assert cluster.access.user == "ubuntu"
    assert [(n.name, n.address, n.gpus) for n in cluster.nodes] == [
        ("ctl1", "192.0.2.10", None),
        ("gpu01", "192.0.2.101", H100),
        ("gpu02", "192.0.2.102", H100),
        ("login1", "192.0.2.11", None),
    ]
    assert [n.name for n in cluster.with_role(Role.LOGIN)] == ["login1"]


def test_a_node_list_whose_settings_are_none_is_refused_with_its_line() -> None:
    problems = Problems()
    draft_yaml("schema: 1\nnodes: []\nsettings: [monitoring]\n", "nodes.yml", problems)

    with pytest.raises(InputError) as refused:
        problems.raise_if_any()
    assert any(problem.where == "nodes.yml:3" for problem in refused.value.problems)


def test_a_node_list_with_empty_settings_has_none() -> None:
    problems = Problems()
    draft_yaml("schema: 1\nnodes: [{names: a, roles: [controller, compute]}]\nsettings:\n", "nodes.yml", problems)

    assert not len(problems)

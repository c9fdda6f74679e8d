"""How nodes are started, and how they are found again."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from deepopsctl.lab.containers import Container, parse_container, run_argv
from deepopsctl.lab.layout import LabNode
from deepopsctl.lab.manage import NodeStatus, node_statuses
from deepopsctl.lab.podman import Engine, PodmanError
from deepopsctl.lab.state import LabDir, LabRecord
from deepopsctl.model.cluster import Gpus, Role

ENGINE = Engine(global_options=("--runtime=runc",), run_options=("--cap-add=SYS_ADMIN",))
NETWORK = IPv4Network("10.89.3.0/24")
CTL1 = LabNode("ctl1", Role.CONTROLLER, 10)
GPU01 = LabNode("gpu01", Role.COMPUTE, 101, Gpus("h100", 2))


def argv(node: LabNode) -> tuple[str, ...]:
    return run_argv(ENGINE, "demo", "localhost/image:tag", node, NETWORK, LabDir(Path("/state/demo")))


def test_a_node_is_started_with_its_name_label_and_address() -> None:
    assert argv(CTL1) == (
        "--runtime=runc",
        "run",
        "--detach",
        "--pull=never",
        "--name=demo-ctl1",
        "--hostname=ctl1",
        "--label=deepopsctl.lab=demo",
        "--label=deepopsctl.node=ctl1",
        "--network=deepopsctl-demo",
        "--ip=10.89.3.10",
        "--mac-address=02:42:0a:59:03:0a",
        "--no-hosts",
        "--systemd=always",
        "--sysctl=net.ipv4.ping_group_range=0 2147483647",
        "--cap-add=SYS_ADMIN",
        "--volume=/state/demo/shared:/srv/shared",
        "localhost/image:tag",
    )


def test_only_a_node_with_gpus_gets_device_files() -> None:
    assert [option for option in argv(GPU01) if "device" in option] == [
        "--device=/state/demo/devices/nvidia0:/dev/nvidia0",
        "--device=/state/demo/devices/nvidia1:/dev/nvidia1",
    ]
    assert not any("device" in option for option in argv(CTL1))


def inspected(state: str, address: str) -> dict[str, object]:
    return {
        "Id": "4f2a",
        "State": {"Status": state},
        "Config": {"Labels": {"deepopsctl.lab": "demo", "deepopsctl.node": "gpu01"}},
        "NetworkSettings": {"Networks": {"deepopsctl-demo": {"IPAddress": address}}},
    }


def test_a_container_is_read_from_podman_inspect() -> None:
    container = parse_container(inspected("running", "10.89.3.101"))
    assert container == Container("4f2a", "demo", "gpu01", "running", "10.89.3.101")
    assert container.runs


def test_a_container_without_our_labels_is_an_error_that_names_the_label() -> None:
    with pytest.raises(PodmanError, match=r"deepopsctl\.lab"):
        parse_container({"Id": "1", "Config": {"Labels": {}}, "NetworkSettings": {}, "State": {"Status": "running"}})


def test_status_shows_missing_nodes_and_strays() -> None:
    record = LabRecord("demo", "debian13", GPU01.gpus, sudo_asks=False, nodes=(CTL1, GPU01))
    running = Container("1", "demo", "ctl1", "running", "10.89.3.10")
    stray = Container("2", "demo", "gpu09", "created", "")
    assert node_statuses(record, [stray, running]) == (
        NodeStatus("ctl1", ("controller",), None, "10.89.3.10", "running"),
        NodeStatus("gpu01", ("compute",), Gpus("h100", 2), "", "missing"),
        NodeStatus("gpu09", (), None, "", "created"),
    )

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deepopsctl.model.cluster import Access, Cluster, Node, Role
from deepopsctl.ssh.client_config import controller_config, controller_known_hosts, users_config, users_known_hosts
from deepopsctl.ssh.host_keys import HostKey, KnownHosts

CONTROLLER = Node("ctl1", frozenset({Role.CONTROLLER}), "192.0.2.1")
COMPUTE = (
    Node("gpu01", frozenset({Role.COMPUTE}), "2001:db8::11", port=2222),
    Node("gpu02", frozenset({Role.COMPUTE})),
)
LOGIN = Node("login1", frozenset({Role.LOGIN}), "192.0.2.2")
KEY = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP")


def cluster(*nodes: Node, jump_host: str = "", port: int = 0, login_name: str = "") -> Cluster:
    access = Access("ubuntu", port=port, jump_host=jump_host, login_name=login_name)
    return Cluster("hpc", access, nodes, ())


def resolved(text: str, host: str, directory: Path) -> dict[str, str]:
    """What ssh itself makes of a configuration for one host."""
    file = directory / "config"
    file.write_text(text)
    done = subprocess.run(["ssh", "-G", "-F", str(file), host], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_users_reach_login_nodes_directly_and_others_through_them(tmp_path: Path) -> None:
    text = users_config(cluster(CONTROLLER, *COMPUTE, LOGIN), "ada")
    login, gpu01, gpu02 = (resolved(text, name, tmp_path) for name in ("login1", "gpu01", "gpu02"))
    assert (login["hostname"], login["user"]) == ("192.0.2.2", "ada")
    assert "proxyjump" not in login
    # the login node resolves names of other nodes
    assert (gpu01["hostname"], gpu01["port"], gpu01["proxyjump"]) == ("gpu01", "2222", "login1")
    assert (gpu02["hostname"], gpu02["user"], gpu02["proxyjump"]) == ("gpu02", "ada", "login1")
    assert "hpc.known_hosts" in gpu02["userknownhostsfile"]


def test_many_nodes_are_patterns_that_leave_login_nodes_out(tmp_path: Path) -> None:
    nodes = [Node(f"n{number:02}", frozenset({Role.COMPUTE})) for number in range(2, 60)]
    text = users_config(cluster(Node("n01", frozenset({Role.CONTROLLER, Role.LOGIN}), "192.0.2.1"), *nodes))

    assert "Host n?? !n01\n" in text
    assert resolved(text, "n59", tmp_path)["proxyjump"] == "n01"
    assert "proxyjump" not in resolved(text, "n01", tmp_path)


def test_without_login_nodes_the_controller_is_the_jump_host(tmp_path: Path) -> None:
    text = users_config(cluster(CONTROLLER, *COMPUTE))
    assert "User " not in text
    assert resolved(text, "gpu01", tmp_path)["proxyjump"] == "ctl1"
    assert "proxyjump" not in resolved(text, "ctl1", tmp_path)


def test_the_jump_host_of_the_cluster_comes_before_the_controller(tmp_path: Path) -> None:
    text = users_config(cluster(CONTROLLER, *COMPUTE, jump_host="ada@bastion.example.com:2022"))
    assert resolved(text, "ctl1", tmp_path)["proxyjump"] == "ada@bastion.example.com:2022"
    assert resolved(text, "gpu01", tmp_path)["proxyjump"] == "ctl1"


def test_one_name_for_all_login_nodes_is_the_jump_host(tmp_path: Path) -> None:
    several = cluster(CONTROLLER, *COMPUTE, LOGIN, login_name="login.example.com", port=2022)
    text = users_config(several)
    pins = KnownHosts(tmp_path / "pins")
    pins.pin(["[login1]:2022", "[192.0.2.2]:2022", "[gpu02]:2022"], [KEY])

    for name in ("hpc", "login.example.com"):
        one = resolved(text, name, tmp_path)
        assert (one["hostname"], one["port"]) == ("login.example.com", "2022")
    assert resolved(text, "gpu02", tmp_path)["proxyjump"] == "hpc"
    assert resolved(text, "login1", tmp_path)["hostname"] == "192.0.2.2"
    assert users_known_hosts(several, pins).splitlines() == [
        f"[gpu02]:2022,hpc-job {KEY.type} {KEY.blob}",
        f"[login1]:2022,[192.0.2.2]:2022,[login.example.com]:2022 {KEY.type} {KEY.blob}",
    ]


@pytest.mark.parametrize("host", ["gpu01", "2001:db8::11"])
def test_the_controller_knows_nodes_by_name_and_by_address(tmp_path: Path, host: str) -> None:
    key = "/etc/ssh/deepopsctl/login/deepopsctl-hpc"
    result = resolved(controller_config(cluster(CONTROLLER, *COMPUTE), "deepopsctl-hpc", key), host, tmp_path)
    assert (result["hostname"], result["port"], result["user"]) == ("2001:db8::11", "2222", "ubuntu")
    assert result["identityfile"] == key
    assert "deepopsctl-hpc.known_hosts" in result["userknownhostsfile"]


def test_the_clusters_port_is_every_nodes_port(tmp_path: Path) -> None:
    text = controller_config(cluster(CONTROLLER, *COMPUTE, port=2022), "deepopsctl-hpc", "~/.ssh/deepopsctl-hpc")
    assert resolved(text, "ctl1", tmp_path)["port"] == "2022"
    assert resolved(text, "gpu01", tmp_path)["port"] == "2222"


def test_the_controller_gets_the_pinned_keys_under_names_and_addresses(tmp_path: Path) -> None:
    pins = KnownHosts(tmp_path / "pins")
    pins.pin(["192.0.2.1", "ctl1"], [KEY])
    pins.pin(["[2001:db8::11]:2222"], [KEY])
    file = tmp_path / "known_hosts"
    file.write_text(controller_known_hosts(cluster(CONTROLLER, *COMPUTE), pins))
    assert KnownHosts(file).keys("ctl1") == KnownHosts(file).keys("192.0.2.1") == {KEY}
    assert KnownHosts(file).keys("[gpu01]:2222") == KnownHosts(file).keys("[2001:db8::11]:2222") == {KEY}
    assert not KnownHosts(file).keys("gpu02")

"""Nodes on which a deploy could not end well are refused first, each with the way out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import platform

UBUNTU = {"distribution": "Ubuntu", "distribution_version": "22.04", "distribution_major_version": "22"}
DEBIAN = {"distribution": "Debian", "distribution_version": "13", "distribution_major_version": "13"}
BOOKWORM = {**DEBIAN, "distribution_version": "12", "distribution_major_version": "12", "deepops_cgroup": "v2"}
RELEASES = {"Ubuntu 22.04": "21.08", "Debian 11": "20.11", "Debian 12": "22.05"}


@pytest.mark.parametrize(
    ("version", "word"), [("3.14.0", "new"), ("3.8.10", "old"), ("4.0.1", "new"), ("3.9.2", ""), ("3.13.7", "")]
)
def test_a_python_out_of_ansibles_range_is_refused(version: str, word: str) -> None:
    message, hint = platform.python_refusal(version, ["3.9", "3.13"], "2.19")

    assert (f"is too {word} here" in message) is bool(word)
    assert ("ansible_python_interpreter" in hint) is bool(word)


def test_an_unknown_ansible_refuses_no_python() -> None:
    assert platform.python_refusal("3.19.0", [], "2.30") == ("", "")


def test_a_slurm_that_can_not_confine_by_cgroup_v2_is_refused_where_there_is_v2() -> None:
    v2, v1 = {**UBUNTU, "deepops_cgroup": "v2"}, {**UBUNTU, "deepops_cgroup": "v1"}
    release = platform.packaged_slurm(RELEASES, UBUNTU)

    message, hint = platform.slurm_refusal(release, v2)

    assert message.startswith("Ubuntu 22.04 packages Slurm 21.08, which can't confine jobs by cgroup v2")
    assert "slurm_install: repository" in hint
    assert platform.slurm_refusal(release, v1) == ("", "")
    assert platform.slurm_refusal("22.05", v2) == ("", "")
    assert platform.packaged_slurm(RELEASES, DEBIAN) == ""


def test_a_slurm_that_can_not_reach_a_controller_by_ipv6_is_refused_where_that_is_its_address() -> None:
    release = platform.packaged_slurm(RELEASES, BOOKWORM)

    message, hint = platform.slurm_refusal(release, BOOKWORM, ["192.0.2.1", "2001:db8::1"])

    assert message.startswith(
        "Debian 12 packages Slurm 22.05, which can't reach a controller by its IPv6 address 2001:"
    )
    assert "slurm_install: repository" in hint
    assert "IPv4 addresses in cluster.yml" in hint
    assert platform.slurm_refusal(release, BOOKWORM, ["192.0.2.1"]) == ("", "")
    assert platform.slurm_refusal("24.11", BOOKWORM, ["2001:db8::1"]) == ("", "")


def test_without_confinement_cgroup_v2_is_no_obstacle() -> None:
    assert platform.slurm_refusal("21.08", {**UBUNTU, "deepops_cgroup": "v2"}, confines=False) == ("", "")


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.1", "::1"])
def test_a_name_that_means_this_host_alone_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(platform, "own_addresses", lambda _name: [address])

    message, hint = platform.name_refusal("gpu01", "")

    assert message == f"its own name gpu01 is {address} here, which no other node reaches"
    assert "give it an address in cluster.yml" in hint
    # a deploy then writes its own line before the installer's
    assert platform.name_refusal("gpu01", "192.0.2.7") == ("", "")


def test_a_name_with_an_address_or_with_none_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    for addresses in (["192.0.2.7"], ["127.0.1.1", "192.0.2.7"], []):
        monkeypatch.setattr(platform, "own_addresses", lambda _name, has=addresses: has)
        assert platform.name_refusal("gpu01", "") == ("", "")


def test_localhost_is_a_loopback_address_here() -> None:
    assert platform.name_refusal("localhost", "")[0].startswith("its own name localhost is ")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("hostname: gpu01\nmanage_etc_hosts: true\n", True),
        ('manage_etc_hosts: "template"\n', True),
        ("manage_etc_hosts: true\nmanage_etc_hosts: false\n", False),
        ("manage_etc_hosts: localhost\n", False),
        ("# manage_etc_hosts: true\n", False),
        ("", False),
    ],
)
def test_a_cloud_init_that_rewrites_hosts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, refused: bool
) -> None:
    (tmp_path / "user-data").write_text(text)
    monkeypatch.setattr(platform, "CLOUD_INIT", sys.executable)

    message, hint = platform.cloud_init_refusal(str(tmp_path / "user-data"))

    assert bool(message) is refused
    assert ("cloud-init.disabled" in hint) is refused
    monkeypatch.setattr(platform, "CLOUD_INIT_OFF", str(tmp_path / "user-data"))
    assert platform.cloud_init_refusal(str(tmp_path / "user-data")) == ("", "")


@pytest.mark.parametrize(
    ("family", "families", "message"),
    [("Debian", ["Debian"], ""), ("RedHat", ["Debian"], "Some 9 is not supported"), ("RedHat", [], "")],
)
def test_a_system_without_packages_is_refused(family: str, families: list[str], message: str) -> None:
    facts = {"os_family": family, "distribution": "Some", "distribution_version": "9"}

    assert platform.platform_refusal(facts, families)[0] == message


def test_this_node_is_asked_for_everything() -> None:
    assert platform.refusals({}) == {}
    assert set(platform.refusals({"python": ["2.0", "2.7"], "core": "2.19", "name": "localhost"})) == {"python", "name"}
    assert platform.refusal({"python": ["2.0", "2.7"], "core": "2.19"})[0].startswith("Python 3.")

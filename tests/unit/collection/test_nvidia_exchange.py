"""Which packages are exchanged for another branch of the driver: NVIDIA's for Debian, Ubuntu's with numbered names."""

from __future__ import annotations

import fnmatch
from types import SimpleNamespace

import pytest

from tests.support import node_modules as nodeside

exchange = nodeside.load("nvidia.branch")
node_packages = nodeside.load("node.packages")
nvidia_node = nodeside.load("nvidia.facts")

DEBIAN = {
    "libcuda1": "580.95.05-1",
    "nvidia-driver-cuda": "580.95.05-1",
    "nvidia-kernel-open-dkms": "580.95.05-1",
    "nvidia-kernel-support": "580.95.05-1",
    "nvidia-fabricmanager": "1:580.95.05-1",
    "nvidia-container-toolkit": "1.18.0-1",
    "nvidia-support": "20240109+1",
}
WANTED = ["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "linux-headers-amd64"]


def test_all_of_it_goes_to_the_newest_version_of_the_branch_in_one_transaction() -> None:
    old = exchange.family(DEBIAN, "580.95.05")
    assert set(DEBIAN) - set(old) == {"nvidia-container-toolkit", "nvidia-support"}
    known = {name: ["610.1.1-1", "595.45.04-1", "595.10.01-1", "580.95.05-1"] for name in old}
    made = exchange.transaction(old, WANTED, exchange.offered(known, "595"))

    assert made.missing == []
    assert made.removed == []
    assert set(made.versions) == set(old)
    assert "libcuda1=595.45.04-1" in made.arguments
    assert made.arguments[-1] == "linux-headers-amd64"


def test_packages_without_nvidia_in_their_name_are_exchanged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = nodeside.plugin("modules", "nvidia_driver")
    there = {**DEBIAN, "libnvcuvid1": "580.95.05-1"}
    calls: list[list[str]] = []

    def installed(patterns: list[str]) -> dict[str, str]:
        return {name: there[name] for name in there if any(fnmatch.fnmatch(name, each) for each in patterns)}

    monkeypatch.setattr(driver.node_packages, "installed", installed)
    monkeypatch.setattr(driver.node_packages, "refresh", lambda _options, _wait: None)
    monkeypatch.setattr(driver.node_packages, "versions", lambda names: {name: ["595.45.04-1"] for name in names})
    monkeypatch.setattr(driver.node_packages, "install", lambda names, _wait: calls.append(names))
    monkeypatch.setattr(driver.command, "require", calls.append)
    monkeypatch.setattr(driver.slurm_node_jobs, "why_busy", lambda _node: "")
    monkeypatch.setattr(driver, "stop_daemons", lambda: None)
    monkeypatch.setattr(driver, "unload", lambda: "")
    wanted = {"node": "n1", "branch": "595", "installed_version": "580.95.05", "packages": WANTED, "lock_wait": 1}

    driver.replace(SimpleNamespace(check_mode=False), wanted)

    unheld, asked = calls
    assert "libnvcuvid1" in unheld
    assert "libnvcuvid1=595.45.04-1" in asked


def test_names_with_a_number_are_removed_as_the_others_come() -> None:
    old = {"libnvidia-compute-570": "570.1-0ubuntu1", "nvidia-utils-570": "570.1-0ubuntu1"}
    offered = {"libnvidia-compute-580": "580.2-0ubuntu1", "nvidia-utils-580": "580.2-0ubuntu1"}
    made = exchange.transaction(old, list(offered), offered)

    assert made.arguments == [
        "libnvidia-compute-580=580.2-0ubuntu1", "nvidia-utils-580=580.2-0ubuntu1",
        "libnvidia-compute-570-", "nvidia-utils-570-",
    ]  # fmt: skip


def test_modules_of_the_other_kind_go() -> None:
    old = {"nvidia-kernel-dkms": "550.1-1", "nvidia-smi": "550.1-1"}
    offered = {"nvidia-kernel-dkms": "580.1-1", "nvidia-kernel-open-dkms": "580.1-1", "nvidia-smi": "580.1-1"}
    made = exchange.transaction(old, ["nvidia-smi", "nvidia-kernel-open-dkms"], offered)

    assert made.removed == ["nvidia-kernel-dkms"]
    # one that no node has is missing
    assert exchange.transaction({}, WANTED, {"nvidia-driver-cuda": "595.1-1"}).missing == ["nvidia-kernel-open-dkms"]


def test_versions_are_read_as_apt_lists_them() -> None:
    shown = (
        " nvidia-smi | 580.95.05-1 | https://developer.download.nvidia.com/compute/cuda/repos Packages\n"
        " nvidia-smi | 550.163.01-2 | http://deb.debian.org/debian trixie/non-free amd64 Packages\n"
    )
    assert node_packages.versions_in(shown) == [("nvidia-smi", "580.95.05-1"), ("nvidia-smi", "550.163.01-2")]
    assert exchange.offered({"nvidia-smi": ["580.95.05-1", "550.163.01-2"]}, "550") == {"nvidia-smi": "550.163.01-2"}


class TestPredictedHolds:
    SHOWN = """\
Inst libnvidia-ml1 (550.163.01-2 Debian:13.1/stable [amd64])
Inst libcuda1 [550.100.00-1] (550.163.01-2 Debian:13.1/stable [amd64])
Inst nvidia-modprobe (535.161.07-1 Debian:13.1/stable [amd64])
Inst libc6-dev (2.41-12 Debian:13.1/stable [amd64])
Conf libcuda1 (550.163.01-2 Debian:13.1/stable [amd64])
"""

    def test_libraries_that_come_with_the_driver_are_held_too(self) -> None:
        assert nvidia_node.packages_in_simulation(self.SHOWN, ["libcuda1"]) == ["libcuda1", "libnvidia-ml1"]

    @pytest.mark.parametrize("shown", ["", "E: Unable to locate package libcuda1\n"])
    def test_where_apt_does_not_know_them_yet_the_named_ones_are(self, shown: str) -> None:
        assert nvidia_node.packages_in_simulation(shown, ["libcuda1", "linux-headers-amd64"]) == ["libcuda1"]

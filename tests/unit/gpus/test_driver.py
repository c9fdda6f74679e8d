"""Which driver a node gets: by its hardware, its platform, cluster.yml and the settings; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deepopsctl.gpus.driver import DriverPlan, Settings, plan_driver
from deepopsctl.model.cluster import Gpus
from tests.data.driver_samples import HEADERS, KERNEL, facts
from tests.support.paths import ROOT

CATALOGUE = yaml.safe_load((ROOT / "group_vars/all/versions.yml").read_text(encoding="utf-8"))["deepops_nvidia_drivers"]


def plan(
    kind: str = "h100",
    count: int = 1,
    platform: str = "Debian 13",
    on: dict[str, Any] | None = None,
    **settings: Any,
) -> DriverPlan:
    """The plan for a node with GPUs of one kind."""
    return plan_driver(on or facts(count), platform, Gpus(kind, count), Settings(**settings), CATALOGUE)


class TestSource:
    def test_nvidias_repository_is_the_default(self) -> None:
        made = plan()

        assert (made.source, made.branch, made.modules) == ("repository", "580", "open")
        assert made.repository["path"] == "debian13"
        assert made.packages == (
            "nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-open-dkms",
            f"linux-headers-{KERNEL}", "linux-headers-amd64",
        )  # fmt: skip

    def test_debians_own_have_debians_branch(self) -> None:
        made = plan(source="distro")

        assert (made.branch, made.modules) == ("550", "proprietary")
        assert made.packages[:4] == ("libcuda1", "nvidia-smi", "nvidia-persistenced", "nvidia-kernel-dkms")
        assert made.repository == {}

    def test_ubuntus_own_need_no_headers_and_no_key_of_the_sites(self) -> None:
        headers = {**HEADERS, "meta": "linux-headers-aws", "available": False}
        on = facts(secure_boot=True, headers=headers, kernel="6.8.0-1015-aws")
        made = plan(platform="Ubuntu 24.04", source="distro", on=on)

        assert made.problems == ()
        assert "linux-modules-nvidia-580-server-open-aws" in made.packages
        assert not any("headers" in name for name in made.packages)

    def test_a_driver_that_somebody_else_installed_is_left_as_it_is(self) -> None:
        running: dict[str, Any] = {"loaded": {"version": "535.1.2", "open": False}, "library": "535.1.2"}

        assert plan(on=facts(**running)) == DriverPlan("present", source="present")
        assert plan(on=facts(**running, managed=True)).replaces == "535.1.2"


class TestDevices:
    def test_a_node_without_one_is_left_alone(self) -> None:
        made = plan(count=2, on=facts(0))

        assert made == DriverPlan("none", "cluster.yml declares 2 GPUs, and no NVIDIA device is on the PCI bus")

    def test_an_image_gets_it_without_one_and_loads_nothing(self) -> None:
        made = plan(on=facts(0), without_device=True)

        assert made.state == "install"
        assert "nvidia-kernel-open-dkms" in made.packages
        assert not made.loads


class TestModules:
    def test_they_follow_the_generation(self) -> None:
        assert plan("v100").modules == "proprietary"
        assert plan("a100").modules == "open"

    def test_before_560_the_proprietary_ones_are_the_default_and_the_open_ones_a_choice(self) -> None:
        assert plan("a100", source="distro").modules == "proprietary"
        assert "nvidia-open-kernel-dkms" in plan("a100", source="distro", modules="open").packages

    def test_an_untyped_gpu_is_known_by_its_pci_id(self) -> None:
        assert plan("", on=facts(device="0x1db6")).modules == "proprietary"
        assert plan("", on=facts(device="0x20b2")).modules == "open"


class TestFabric:
    def test_nvswitches_on_the_bus_bring_the_fabric_manager(self) -> None:
        made = plan(count=8, on=facts(8, nvswitches=4))

        assert "nvidia-fabricmanager" in made.packages
        assert "nvlsm" not in made.packages
        assert made.units == ("nvidia-persistenced.service", "nvidia-fabricmanager.service")

    def test_an_hgx_board_with_hidden_switches_brings_the_subnet_manager_too(self) -> None:
        made = plan("b200", 8)

        # without ibstat, of infiniband-diags, the fabric manager does not start there
        assert {"nvidia-fabricmanager", "nvlsm", "infiniband-diags"} <= set(made.packages)
        assert made.subnet
        assert not plan(count=8, on=facts(8, nvswitches=4)).subnet

    def test_ubuntus_fabric_manager_is_of_the_same_source_as_the_driver(self) -> None:
        on = facts(8, nvswitches=4)

        # NVIDIA's has no number from 580 on, and Ubuntu's own goes with Ubuntu's own driver
        assert "nvidia-fabricmanager" in plan(count=8, on=on, platform="Ubuntu 24.04").packages
        assert "nvidia-fabricmanager-580" in plan(count=8, on=on, platform="Ubuntu 24.04", source="distro").packages


class TestKernel:
    def test_modules_that_were_built_for_one_kernel_hold_it(self) -> None:
        # the driver's packages are held: another kernel would come without modules
        assert plan(platform="Ubuntu 24.04", source="distro").with_kernel
        # DKMS builds them for the next kernel, whose headers come with it
        assert not plan(platform="Ubuntu 24.04").with_kernel
        # a container has its host's
        assert not plan(platform="Ubuntu 24.04", on=facts(1, container=True), source="distro").with_kernel


OTHER_BRANCH = {"source": "repository", "on": facts(library="550.163.01")}
BUSY = {"source": "repository", "on": facts(library="550.163.01", managed=True, idle=False)}
ON_UBUNTU = {"kind": "b200", "count": 8, "platform": "Ubuntu 24.04", "source": "distro"}
RUN_INSTALLER = facts(run_installer="/usr/bin/nvidia-uninstall", library="590.44.01")


@pytest.mark.parametrize(
    ("node", "message", "hint"),
    [
        ({"source": "present"}, "expects a driver that deepopsctl did not install, but none is loaded", ""),
        (
            {"source": "present", "branch": "580", "on": facts(loaded={"version": "570.10", "open": True})},
            "driver 570.10 runs, branch 580 is wanted",
            "",
        ),
        (
            {"on": facts(loaded={"version": "535.1.2", "open": False}, library="535.3.4")},
            "the kernel runs driver 535.1.2, and 535.3.4 is installed",
            "",
        ),
        (
            {"platform": "Debian 11"},
            "no driver of the source `repository` is known for Debian 11",
            "Debian 12, Debian 13, Ubuntu 22.04, Ubuntu 24.04",
        ),
        ({"kind": "b200", "modules": "proprietary"}, "b200 needs the open kernel modules, not proprietary", ""),
        ({"kind": "v100", "branch": "595"}, "branch 595 no longer drives v100", ""),
        (ON_UBUNTU, "need NVIDIA's subnet manager, which Ubuntu 24.04 does not package", ""),
        (
            {"source": "distro", "on": facts(8, nvswitches=4)},
            "this node has NVSwitches, and Debian 13 packages no fabric manager",
            "set nvidia_driver_source: repository",
        ),
        (
            {"source": "distro", "branch": "580"},
            "Debian 13 has no driver branch 580 in the source `distro`",
            "550",
        ),
        (
            {"on": facts(headers={**HEADERS, "available": False})},
            f"the package sources have no headers for the running kernel {KERNEL}",
            "",
        ),
        (
            {"source": "repository", "on": RUN_INSTALLER},
            "a driver of NVIDIA's .run installer is there (/usr/bin/nvidia-uninstall)",
            "",
        ),
        (OTHER_BRANCH, "550.163.01 is installed, branch 580 is wanted, and deepopsctl did not install it", ""),
        (BUSY, "jobs run or may start here", "nvidia_driver_drain"),
        ({"on": facts(secure_boot=True)}, "Secure Boot is on", ""),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(node: dict[str, Any], message: str, hint: str) -> None:
    ((result, advice),) = plan(**node).problems

    assert message in result
    assert advice
    assert hint in advice


def test_what_was_refused_replaces_nothing_and_an_enrolled_key_is_enough_for_secure_boot() -> None:
    assert plan(source="repository", on=facts(library="550.163.01")).replaces == ""
    assert plan(on=facts(secure_boot=True, mok_enrolled=True)).problems == ()


class TestAnotherBranch:
    def test_it_replaces_a_driver_of_ours_on_an_idle_node(self) -> None:
        made = plan(source="repository", branch="595", on=facts(library="580.95.05", managed=True))

        assert (made.problems, made.replaces, made.branch) == ((), "580.95.05", "595")

    def test_it_may_wait_for_jobs_where_the_site_lets_deploy_drain(self) -> None:
        busy = facts(library="580.95.05", managed=True, idle=False)

        assert plan(source="repository", branch="595", drain=True, on=busy).problems == ()

    def test_the_branch_that_is_there_replaces_nothing(self) -> None:
        assert plan(on=facts(library="580.95.05", managed=True, idle=False)).replaces == ""


class TestCatalogue:
    @pytest.mark.parametrize("source", CATALOGUE)
    def test_every_platform_can_be_planned_with_every_branch(self, source: str) -> None:
        for platform, entry in CATALOGUE[source].items():
            for branch in entry["branches"]:
                made = plan(platform=platform, source=source, branch=branch)

                assert made.problems == (), (platform, branch)
                assert not any("{" in name for name in made.packages)

"""Packages that go with a node's driver."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.gpus.driver_packages import DcgmHost, DcgmPlan, DcgmRequest, GdrcopyHost, plan_dcgm, plan_gdrcopy
from deepopsctl.gpus.notation import from_inventory
from deepopsctl.model.cluster import Gpus
from tests.roles.content import load

CATALOGUE = load("group_vars/all/versions.yml")["deepops_dcgm"]
H100 = Gpus("h100", 8)


def plan(
    driver: str = "580.95.05", gpus: Gpus | None = H100, old: str = "", request: DcgmRequest | None = None
) -> DcgmPlan:
    """A node's plan by the versions that deepopsctl has."""
    host = DcgmHost("Debian 13", driver, gpus, old)
    return plan_dcgm(request or DcgmRequest(wanted=True), host, CATALOGUE, ["Debian 13"])


@pytest.mark.parametrize(("driver", "cuda"), [("580", 13), ("595.44.01", 13), ("550.163.01", 12), ("535", 12)])
def test_packages_are_for_the_drivers_major_version_of_cuda(driver: str, cuda: int) -> None:
    assert dict(plan(driver).packages) == dict.fromkeys(
        (
            "datacenter-gpu-manager-4-core",
            f"datacenter-gpu-manager-4-cuda{cuda}",
            "datacenter-gpu-manager-4-proprietary",
            f"datacenter-gpu-manager-4-proprietary-cuda{cuda}",
        ),
        CATALOGUE["version"],
    )


def test_volta_gets_those_for_cuda_12_with_any_driver() -> None:
    groups = [{"type": "v100", "count": 4, "cores": "0-3"}]

    assert "datacenter-gpu-manager-4-cuda12" in plan("580", Gpus("v100", 4)).packages
    assert "datacenter-gpu-manager-4-cuda12" in plan("580", from_inventory({"count": 4, "kinds": groups})).packages


def test_nothing_is_installed_where_it_is_not_wanted_or_no_driver_is() -> None:
    assert plan(request=DcgmRequest(wanted=False), old="1:3.3.9") == DcgmPlan()
    assert plan(driver="") == DcgmPlan()


def test_a_driver_that_is_too_old_is_refused() -> None:
    ((message, _),) = plan("470.256.02").problems

    assert message.endswith("needs driver 525 or later, this node's is 470.256.02")


def test_the_old_package_is_refused_with_what_to_do() -> None:
    ((message, hint),) = plan(old="1:3.3.9").problems

    assert message == "datacenter-gpu-manager 1:3.3.9 is installed, which conflicts with DCGM 4"
    assert "apt-get purge datacenter-gpu-manager" in hint


def test_a_platform_without_a_repository_of_nvidias_is_refused() -> None:
    host = DcgmHost("Debian 11", "580", H100)

    ((message, _),) = plan_dcgm(DcgmRequest(wanted=True), host, CATALOGUE, ["Debian 13"]).problems

    assert message == "NVIDIA packages no DCGM for Debian 11"


GDRCOPY = {"version": "2.6-*", "library": ["libgdrapi"], "module": ["gdrdrv-dkms"]}


def host(**changes: Any) -> GdrcopyHost:
    return GdrcopyHost(**{"driver": "580.95.05", "dkms": True, "container": False, **changes})


def test_a_node_with_a_driver_gets_the_library_and_the_module_in_one_version() -> None:
    plan = plan_gdrcopy(host(), GDRCOPY, wanted=True)

    assert plan.packages == {"libgdrapi": "2.6-*", "gdrdrv-dkms": "2.6-*"}
    assert plan.module
    assert plan.problems == ()


def test_a_container_gets_the_library_alone() -> None:
    plan = plan_gdrcopy(host(container=True, dkms=False), GDRCOPY, wanted=True)

    assert (dict(plan.packages), plan.module, plan.problems) == ({"libgdrapi": "2.6-*"}, False, ())


def test_where_it_is_not_wanted_or_there_is_no_driver_there_is_nothing() -> None:
    unwanted = plan_gdrcopy(host(dkms=False), GDRCOPY, wanted=False)
    for plan in (unwanted, plan_gdrcopy(host(driver=""), GDRCOPY, wanted=True)):
        assert (dict(plan.packages), plan.module, plan.problems) == ({}, False, ())


def test_a_driver_without_its_sources_is_refused_with_what_to_do() -> None:
    ((message, hint),) = plan_gdrcopy(host(dkms=False), GDRCOPY, wanted=True).problems

    assert "built against the driver's sources" in message
    assert "nvidia_driver_source: repository" in hint
    assert "nvidia_gdrcopy: false" in hint

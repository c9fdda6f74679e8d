"""GDRCopy's packages on a node."""

from __future__ import annotations

from typing import Any

from deepopsctl.gpus.driver_packages import GdrcopyHost, plan_gdrcopy

CATALOGUE = {"version": "2.6-*", "library": ["libgdrapi"], "module": ["gdrdrv-dkms"]}


def host(**changes: Any) -> GdrcopyHost:
    return GdrcopyHost(**{"driver": "580.95.05", "dkms": True, "container": False, **changes})


def test_a_node_with_a_driver_gets_the_library_and_the_module_in_one_version() -> None:
    plan = plan_gdrcopy(host(), CATALOGUE, wanted=True)

    assert plan.packages == {"libgdrapi": "2.6-*", "gdrdrv-dkms": "2.6-*"}
    assert plan.module
    assert plan.problems == ()


def test_a_container_gets_the_library_alone() -> None:
    plan = plan_gdrcopy(host(container=True, dkms=False), CATALOGUE, wanted=True)

    assert (dict(plan.packages), plan.module, plan.problems) == ({"libgdrapi": "2.6-*"}, False, ())


def test_where_it_is_not_wanted_or_there_is_no_driver_there_is_nothing() -> None:
    unwanted = plan_gdrcopy(host(dkms=False), CATALOGUE, wanted=False)
    for plan in (unwanted, plan_gdrcopy(host(driver=""), CATALOGUE, wanted=True)):
        assert (dict(plan.packages), plan.module, plan.problems) == ({}, False, ())


def test_a_driver_without_its_sources_is_refused_with_what_to_do() -> None:
    ((message, hint),) = plan_gdrcopy(host(dkms=False), CATALOGUE, wanted=True).problems

    assert "built against the driver's sources" in message
    assert "nvidia_driver_source: repository" in hint
    assert "nvidia_gdrcopy: false" in hint

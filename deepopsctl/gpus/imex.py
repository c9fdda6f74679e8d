"""The IMEX package of a node, in exactly the version of its driver: other versions do not work with it.

Names are data (`imex` in deepops_nvidia_drivers, group_vars/all/versions.yml). Source: NVIDIA's guide to IMEX, and the
package lists of its repositories, in which the name has had no number since driver 580.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ImexPlan:
    """The package with its version, none if the driver came with the system; and problems."""

    packages: Mapping[str, str] = field(default_factory=dict)
    runs: bool = False
    problems: tuple[tuple[str, str], ...] = ()


def plan_imex(domain: str, driver: str, source: str, platform: str, catalogue: Mapping[str, Any]) -> ImexPlan:
    """The plan for a node of that NVLink domain ('' for none); `driver` is its driver's version, or its branch."""
    if not domain or not driver:
        return ImexPlan()
    if not source:
        # as with the driver itself: preinstalled software is checked only
        return ImexPlan(runs=True)
    names = catalogue[source][platform]["packages"].get("imex", ())
    if not names:
        what = f"{platform} packages no IMEX, which the NVLink domain {domain} needs"
        hint = "set nvidia_driver_source: repository, or take the node out of nvlink_domains"
        return ImexPlan(problems=((what, hint),))
    branch, exact, _ = driver.partition(".")
    version = f"{driver}-*" if exact else f"{branch}.*"
    return ImexPlan({name.format(branch=branch): version for name in names}, runs=True)

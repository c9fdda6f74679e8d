"""GDRCopy on a node: a library, and a kernel module that is built against the driver's sources.

Packages and version are data (`deepops_gdrcopy` in group_vars/all/versions.yml). Source: NVIDIA's README of GDRCopy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GdrcopyHost:
    """A node: its driver's version or branch ('' for none), whether DKMS builds the modules, if it is a container."""

    driver: str
    dkms: bool
    container: bool


@dataclass(frozen=True, slots=True)
class GdrcopyPlan:
    """Packages with their version, none if not wanted or without a driver; and problems."""

    packages: Mapping[str, str] = field(default_factory=dict)
    module: bool = False
    problems: tuple[tuple[str, str], ...] = ()


def plan_gdrcopy(host: GdrcopyHost, catalogue: Mapping[str, Any], *, wanted: bool) -> GdrcopyPlan:
    """The plan for a node. A container gets the library only: the module belongs to its host."""
    if not wanted or not host.driver:
        return GdrcopyPlan()
    if not host.dkms and not host.container:
        what = "gdrdrv is built against the driver's sources, and this driver's kernel modules come without them"
        hint = "set nvidia_driver_source: repository for this node, or nvidia_gdrcopy: false"
        return GdrcopyPlan(problems=((what, hint),))
    names = [*catalogue["library"], *(() if host.container else catalogue["module"])]
    return GdrcopyPlan(dict.fromkeys(names, catalogue["version"]), not host.container)

"""Packages that go with a node's driver: DCGM, GDRCopy and IMEX, in the versions that fit it.

DCGM is built for a CUDA major version, which follows from the driver; GDRCopy has a kernel module that is built against
the driver's sources; IMEX works only in the driver's own version. Packages and versions: group_vars/all/versions.yml.
Sources: NVIDIA's README of GDRCopy, its guide to IMEX, the package lists of its repositories.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from deepopsctl.gpus.models import Modules, models_of
from deepopsctl.model.cluster import Gpus

# DCGM 3 and earlier; conflicts with the packages of version 4
OLD_PACKAGE = "datacenter-gpu-manager"
# CUDA 13 has no code for Pascal and Volta
LAST_CUDA_FOR_OLD = 12


@dataclass(frozen=True, slots=True)
class DcgmRequest:
    """The settings: `nvidia_dcgm`, and whether to install the proprietary module for profiling fields."""

    wanted: bool
    proprietary: bool = True


@dataclass(frozen=True, slots=True)
class DcgmPlan:
    """Packages with their version, none if DCGM is not wanted or there is no driver; and problems."""

    packages: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DcgmHost:
    """A node: version or branch of its driver, and the version of an installed DCGM 3 package; '' for none."""

    platform: str
    driver: str
    gpus: Gpus | None
    old: str = ""


def plan_dcgm(
    request: DcgmRequest, host: DcgmHost, catalogue: Mapping[str, Any], platforms: Container[str]
) -> DcgmPlan:
    """The plan for a node; NVIDIA has repositories for the `platforms`."""
    if not request.wanted or not host.driver:
        return DcgmPlan()
    branch = int(host.driver.partition(".")[0])
    fitting = sorted(int(major) for major, first in catalogue["drivers"].items() if branch >= first)
    if _has_old_gpus(host.gpus):
        fitting = [major for major in fitting if major <= LAST_CUDA_FOR_OLD]
    problems = []
    if host.platform not in platforms:
        problems.append((f"NVIDIA packages no DCGM for {host.platform}", "set nvidia_dcgm: false for this node"))
    if host.old:
        what = f"{OLD_PACKAGE} {host.old} is installed, which conflicts with DCGM 4"
        problems.append((what, f"`apt-get purge {OLD_PACKAGE}` there, then deploy again"))
    if not fitting:
        what = f"DCGM 4 needs driver {min(catalogue['drivers'].values())} or later, this node's is {host.driver}"
        problems.append((what, "give it a newer driver, or set nvidia_dcgm: false for this node"))
    if problems:
        return DcgmPlan(problems=tuple(problems))
    names = [*catalogue["packages"], *(catalogue["proprietary"] if request.proprietary else ())]
    return DcgmPlan({name.format(cuda=fitting[-1]): catalogue["version"] for name in names})


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


def _has_old_gpus(gpus: Gpus | None) -> bool:
    types = [group.type for group in gpus.groups] or [gpus.type] if gpus else []
    return any(model.modules is Modules.PROPRIETARY for name in types if name for model in models_of(name))

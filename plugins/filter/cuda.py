"""Jinja filters for the role cuda: thin wrappers over deepopsctl.gpus.cuda and deepopsctl.gpus.driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.gpus import cuda, driver as gpus_driver, notation

FILE_MODE = "0644"


def cuda_plan(
    versions: Any,
    platform: str,
    source: str,
    default: object,
    driver: object,
    catalogue: Mapping[str, Any],
    drivers: Mapping[str, Any],
    modulefiles: str,
    profile: str,
) -> dict[str, Any]:
    """Packages, files and problems of a node's toolkits, as node_state takes them."""
    # one version without brackets, and without quotes, is what a person may write
    listed = versions if isinstance(versions, (list, tuple)) else [versions]
    request = cuda.ToolkitRequest([str(version) for version in listed], source, str(default))
    distributed = drivers["distro"].get(platform, {}).get("branches", [""])[0]
    plan = cuda.plan_toolkits(request, cuda.CudaHost(platform, str(driver), distributed), catalogue)
    files = cuda.module_files(plan, modulefiles)
    if files:
        files[profile] = cuda.profile_script(modulefiles)
    return {
        "packages": {toolkit.package: "" for toolkit in plan.toolkits},
        "by_hand": {toolkit.package: f"{toolkit.home}/bin/nvcc" for toolkit in plan.toolkits},
        "files": [{"path": path, "content": text, "mode": FILE_MODE} for path, text in files.items()],
        "problems": [f"{what}: {hint}" for what, hint in plan.problems],
        # what the source is not there for
        "not_for": gpus_driver.PACKAGE_NAMES,
    }


def cuda_driver(
    facts: Mapping[str, Any],
    platform: str,
    gpus: Mapping[str, Any],
    catalogue: Mapping[str, Any],
    source: str,
    branch: object,
    without_device: object,
) -> dict[str, Any]:
    """The branch of the driver that a node gets, else the version it has; and the source that comes along."""
    settings = gpus_driver.Settings(source=source, branch=str(branch), without_device=bool(without_device))
    plan = gpus_driver.plan_driver(facts, platform, notation.from_inventory(gpus), settings, catalogue)
    version = plan.branch or facts["loaded"]["version"] or facts["library"]
    return {"version": version, "source": plan.source if plan.state == "install" else ""}


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())

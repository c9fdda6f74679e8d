"""Jinja filters for the NVIDIA roles: thin wrappers over deepopsctl.gpus.driver and deepopsctl.gpus.mig_layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import packages_sources
from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.gpus import discovery, driver as gpus_driver, driver_packages, gres, mig_layout, notation
from deepopsctl.text import node_sets as text_node_sets


def nvidia_declared(node_sets: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The GPUs that cluster.yml declares for a node, as the inventory has them; {} for none."""
    for entry in node_sets:
        if "gpus" in entry and name in text_node_sets.expand(entry["names"]):
            return dict(entry["gpus"])
    return {}


def nvidia_expected(node_sets: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The same as the node's modules compare them with its driver and with slurmd; {} for none."""
    return gres.expected_gpus(notation.from_inventory(nvidia_declared(node_sets, name)))


def nvidia_probes(gpus: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a node is asked whose cluster.yml entry has these GPUs; slurm_gather reads the answers."""
    return {name: list(argv) for name, argv in discovery.PROBES.items()} if gpus else {}


def nvidia_refusals(names: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """{node: why it can't come back} from the results of `operate/nodes/gpu-check`."""
    refusals = {}
    for name in names:
        result = hostvars[name].get("gpu_check_result", {})
        refusals[name] = result.get("gpu_differences", "its GPUs can't be compared: the node does not answer")
    return {name: why for name, why in refusals.items() if why}


def nvidia_driver_plan(
    facts: Mapping[str, Any],
    platform: str,
    gpus: Mapping[str, Any],
    catalogue: Mapping[str, Any],
    source: str,
    branch: object,
    modules: str,
    without_device: object,
    drain: object,
) -> dict[str, Any]:
    """What the driver takes on a node; problems as sentences."""
    settings = gpus_driver.Settings(source, str(branch), modules, bool(without_device), bool(drain))
    plan = gpus_driver.plan_driver(facts, platform, notation.from_inventory(gpus), settings, catalogue)
    problems = [f"{message}: {hint}" for message, hint in plan.problems]
    listed = {"packages": list(plan.packages), "units": list(plan.units), "problems": problems}
    return {**asdict(plan), **listed, "names": f"{gpus_driver.PACKAGE_SOURCES} {gpus_driver.PACKAGE_NAMES}"}


def nvidia_driver_sources(sources: Sequence[Sequence[Any]], repository: str, keyring: str, debian: object) -> list[str]:
    """The stanzas that a node lacks: NVIDIA's repository ('' for none), and sections of Debian's own sources.

    NVIDIA's packages lean on some of contrib: glx-alternative-nvidia, nvidia-support.
    """
    own = [packages_sources.stanza(repository, "/", "", keyring)] if repository else []
    lacking = [
        (uri, suite, [name for name in missing if name == "contrib" or not repository], key)
        for uri, suite, key, missing in (sources if debian else ())
    ]
    return own + [
        packages_sources.stanza(uri, suite, " ".join(names), key) for uri, suite, names, key in lacking if names
    ]


def nvidia_driver_units(names: Sequence[str]) -> list[dict[str, Any]]:
    """The driver's units as node_state takes them; what their own conditions keep from starting is not an error."""
    return [{"name": name, "optional": True} for name in names]


def nvidia_mig_layouts(gpus: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How each GPU is to be cut, for nvidia_mig; `gpus` is what nvidia_declared gives."""
    return [gpu.as_object() for gpu in mig_layout.desired_gpus(notation.from_inventory(gpus))]


def nvidia_dcgm_plan(
    gpus: Mapping[str, Any],
    wanted: object,
    proprietary: object,
    platform: str,
    driver: object,
    old: Any,
    catalogue: Mapping[str, Any],
    platforms: Any,
) -> dict[str, Any]:
    """DCGM's packages for a node, {name: version}; problems as sentences."""
    request = driver_packages.DcgmRequest(bool(wanted), bool(proprietary))
    host = driver_packages.DcgmHost(platform, str(driver), notation.from_inventory(gpus), old)
    plan = driver_packages.plan_dcgm(request, host, catalogue, platforms)
    problems = [f"{message}: {hint}" for message, hint in plan.problems]
    return {"packages": dict(plan.packages), "problems": problems, "not_for": gpus_driver.PACKAGE_NAMES}


def nvidia_gdrcopy_plan(
    wanted: object,
    driver: object,
    source: str,
    platform: str,
    container: object,
    drivers: Mapping[str, Any],
    catalogue: Mapping[str, Any],
) -> dict[str, Any]:
    """GDRCopy's packages for a node, {name: version}, and whether with its kernel module; problems as sentences."""
    # of a driver that came with the system nothing else is declared
    dkms = drivers.get(source, {}).get(platform, {}).get("dkms", True)
    host = driver_packages.GdrcopyHost(str(driver), bool(dkms), bool(container))
    plan = driver_packages.plan_gdrcopy(host, catalogue, wanted=bool(wanted))
    problems = [f"{message}: {hint}" for message, hint in plan.problems]
    return {"packages": dict(plan.packages), "module": plan.module, "problems": problems}


def nvidia_domain(domains: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The NVLink domain of a node, {name, nodes} with its nodes in order; {} for none."""
    for domain in domains:
        nodes = text_node_sets.expand(domain["nodes"])
        if name in nodes:
            return {"name": domain["name"], "nodes": list(nodes)}
    return {}


def nvidia_imex_plan(
    domain: Mapping[str, Any], driver: object, source: str, platform: str, catalogue: Mapping[str, Any]
) -> dict[str, Any]:
    """IMEX's package for a node, {name: version}, and whether it is to run; problems as sentences."""
    plan = driver_packages.plan_imex(domain.get("name", ""), str(driver), source, platform, catalogue)
    problems = [f"{message}: {hint}" for message, hint in plan.problems]
    return {"packages": dict(plan.packages), "runs": plan.runs, "problems": problems}


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())

"""A node's NVIDIA hardware, kernel and driver. Reads only."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command,
    files as node_files,
    packages as node_packages,
)

VENDOR = "0x10de"
# PCI classes: VGA and 3D controllers are GPUs; NVSwitch is a bridge of the class "other"
GPU_CLASSES = ("0x0300", "0x0302")
NVSWITCH_CLASS = "0x0680"
CONTAINER = "/run/systemd/container"
DGX_RELEASE = "/etc/dgx-release"
# NVIDIA's .run installer leaves these; packages have none of them
RUN_INSTALLER = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOK = "/var/lib/dkms/mok.pub"
# Debian's files have names of their own, which modprobe's settings lead to and modinfo does not know
MODULE_FILES = ("nvidia", "nvidia-current", "nvidia-current-open")
# among the others; Debian has a directory of its own for it
LIBRARIES = ("usr/lib/*/libnvidia-ml.so.*", "usr/lib/*/nvidia/*/libnvidia-ml.so.*")
# kernel modules, firmware and user space of one driver: what must stay on one version
_DRIVER_PACKAGE = re.compile(
    r"nvidia|^cuda-drivers|^(libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm|libxnvctrl\d+)(-|$)"
)
_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def output_of(argv: Sequence[str]) -> str:
    """What a command prints, '' where it fails or is not there."""
    result = command.run(argv, 60)
    return result.output if result.ok else ""


def devices(root: str = "/") -> dict[str, Any]:
    """NVIDIA's GPUs and NVSwitches on the PCI bus: {gpus: [{address, device}], nvswitches: number}."""
    gpus, switches = [], 0
    for directory in sorted(glob.glob(os.path.join(root, "sys/bus/pci/devices/*"))):
        if node_files.text(os.path.join(directory, "vendor")) != VENDOR:
            continue
        class_code = node_files.text(os.path.join(directory, "class"))[:6]
        if class_code in GPU_CLASSES:
            gpus.append(
                {"address": os.path.basename(directory), "device": node_files.text(os.path.join(directory, "device"))}
            )
        switches += class_code == NVSWITCH_CLASS
    return {"gpus": gpus, "nvswitches": switches}


def loaded(root: str = "/") -> dict[str, Any]:
    """The kernel module that runs: {version, open}; version is '' where none does."""
    return {
        "version": node_files.text(os.path.join(root, "sys/module/nvidia/version")),
        "open": "Open Kernel Module" in node_files.text(os.path.join(root, "proc/driver/nvidia/version")),
    }


def built_version() -> str:
    """Version of the kernel module that the running kernel could load; '' without one."""
    versions = [output_of(["modinfo", "--field", "version", name]).strip() for name in MODULE_FILES]
    return next((version for version in versions if version), "")


def library_version(root: str = "/") -> str:
    """Version of the installed user space, by its NVML library; '' without one."""
    paths = [path for pattern in LIBRARIES for path in sorted(glob.glob(os.path.join(root, pattern)))]
    matches = [_VERSION.search(os.path.basename(path)) for path in paths]
    return next((match.group(1) for match in matches if match), "")


def secure_boot(root: str = "/") -> bool:
    """True where the firmware lets only signed kernel modules in."""
    try:
        with open(os.path.join(root, SECURE_BOOT), "rb") as stream:
            # four bytes of attributes come first
            return stream.read()[4:5] == b"\x01"
    except OSError:
        return False


def mok_enrolled() -> bool:
    """True where the key that dkms signs with is one that the firmware trusts."""
    return "is already enrolled" in output_of(["mokutil", "--test-key", MOK]) if os.path.exists(MOK) else False


def of_the_driver(names: Iterable[str]) -> list[str]:
    """Those that are NVIDIA's; kernel headers are the kernel's, and follow it."""
    return [name for name in names if _DRIVER_PACKAGE.search(name)]


def driver_packages(installed: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """The named packages of the driver among {name: version} of the installed ones, and all others of its version."""
    # the revision is each source package's own
    there = {name: version.rpartition("-")[0] for name, version in installed.items()}
    versions = {there[name] for name in of_the_driver(names) if name in there}
    return sorted(name for name in of_the_driver(there) if there[name] in versions)


def packages_to_install(names: Sequence[str]) -> list[str]:
    """The packages of the driver that installing these would add; these themselves where apt does not know them yet."""
    return packages_in_simulation(node_packages.simulated_install(names), names)


def packages_in_simulation(shown: str, names: Sequence[str]) -> list[str]:
    """The same from what `apt-get --simulate install` prints: those of the driver's version."""
    rows = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", shown, re.MULTILINE)
    known = {name.partition(":")[0]: version for name, version in rows}
    return driver_packages(known, names) or sorted(of_the_driver(names))


def run_installer(root: str = "/") -> str:
    """The file by which NVIDIA's .run installer is known; '' where it was not used."""
    for path in RUN_INSTALLER:
        there = os.path.join(root, path.lstrip("/"))
        if os.path.exists(there) and not node_packages.is_packaged(path):
            return path
    return ""


def headers(release: str) -> dict[str, Any]:
    """{installed, available, meta}: headers of the running kernel, and the package that follows its flavour."""
    match = re.match(r"^[0-9.]+(?:-\d+)?(?:\+[^-]+)?-(.+)$", release)
    meta = f"linux-headers-{match.group(1)}" if match else ""
    exact = f"linux-headers-{release}"
    known = node_packages.known("linux-headers-")
    return {
        "installed": os.path.exists(f"/lib/modules/{release}/build/Makefile"),
        "available": exact in known,
        "package": exact,
        "meta": meta if meta in known else "",
    }


def old_dcgm() -> str:
    """Version of DCGM's package from before version 4; '' where it is not installed."""
    return node_packages.installed(["datacenter-gpu-manager"]).get("datacenter-gpu-manager", "")


def facts(managed_preferences: str, idle: bool) -> dict[str, Any]:
    """All of it but apt's sources, as the driver's plan wants it; `idle` says whether a job runs or can start."""
    release = os.uname().release
    result = dict(devices(), loaded=loaded(), library=library_version(), kernel=release, headers=headers(release))
    result.update(
        architecture=os.uname().machine,
        container=os.path.exists(CONTAINER),
        dgx=os.path.exists(DGX_RELEASE),
        managed=os.path.exists(managed_preferences),
        idle=idle,
        nouveau=os.path.isdir("/sys/module/nouveau"),
        run_installer=run_installer(),
        old_dcgm=old_dcgm(),
        secure_boot=secure_boot(),
        mok_enrolled=mok_enrolled(),
    )
    return result

"""The host itself: identity, size, GPUs, how it was started."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from .query import output, read

NVIDIA = "0x10de"
# VGA and 3D controllers; bridges and the audio function of a card have other classes
BOOT_MODULES = "etc/modules-load.d/deepopsctl-*.conf"
GPU_CLASSES = ("0x0300", "0x0302")
EFI = "/sys/firmware/efi"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def identity() -> dict[str, Any]:
    """What identifies this host."""
    return {
        "hostname": os.uname().nodename,
        "machine_id": read("/etc/machine-id"),
        "container": is_container(),
        "kernel": os.uname().release,
    }


def is_container() -> bool:
    """Whether the clock, the kernel and the PCI bus belong to another host."""
    return bool(read("/run/systemd/container")) or os.path.exists("/run/.containerenv") or os.path.exists("/.dockerenv")


def size() -> dict[str, int]:
    """CPUs and memory (MiB): slurmd's own count where it is installed, else the kernel's."""
    fields = dict(re.findall(r"(\w+)=(\S+)", output(["slurmd", "-C"])))
    if fields.get("CPUs", "").isdigit() and fields.get("RealMemory", "").isdigit():
        return {"cpus": int(fields["CPUs"]), "memory_mb": int(fields["RealMemory"])}
    total = re.search(r"^MemTotal:\s+(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    return {"cpus": os.sysconf("SC_NPROCESSORS_ONLN"), "memory_mb": int(total.group(1)) // 1024 if total else 0}


def gpus(devices: str = "/sys/bus/pci/devices") -> dict[str, Any]:
    """NVIDIA GPUs on the PCI bus, as device files, and as their driver sees them."""
    bus = []
    for directory in sorted(glob.glob(os.path.join(devices, "*"))):
        class_code = read(os.path.join(directory, "class"))
        if class_code.startswith(GPU_CLASSES) and read(os.path.join(directory, "vendor")) == NVIDIA:
            bus.append(read(os.path.join(directory, "device")))
    models = []
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        models += re.findall(r"^Model:\s*(.+)$", read(path), re.MULTILINE)
    return {
        "bus": bus,
        "files": len(glob.glob("/dev/nvidia[0-9]*")),
        "models": models,
        "driver": read("/sys/module/nvidia/version"),
        "modules": boot_modules(),
    }


def boot_modules(root: str = "/") -> dict[str, bool]:
    """Kernel modules that a deploy has had loaded at every start, and whether each of them is."""
    modules = {}
    for path in sorted(glob.glob(os.path.join(root, BOOT_MODULES))):
        names = [line.strip() for line in read(path).splitlines() if not line.startswith("#")]
        for name in filter(None, names):
            modules[name] = os.path.isdir(os.path.join(root, "sys/module", name.replace("-", "_")))
    return modules


def secure_boot() -> str:
    """`on`, `off`, `none` (started without EFI) or `unknown`."""
    if not os.path.isdir(EFI):
        # a container does not see its host's firmware
        return "unknown" if is_container() else "none"
    try:
        with open(SECURE_BOOT, "rb") as stream:
            value = stream.read()
    except OSError:
        return "unknown"
    # four bytes of attributes, then the value
    return "on" if len(value) == 5 and value[4] == 1 else "off"


def local_users(path: str = "/etc/passwd") -> dict[str, str]:
    """People's accounts, and Slurm's, in the local /etc/passwd: name and `uid:gid`."""
    users = {}
    for line in read(path).splitlines():
        fields = line.split(":")
        if len(fields) < 4 or not (fields[2].isdigit() and fields[3].isdigit()):
            continue
        if 1000 <= int(fields[2]) < 60000 or fields[0] == "slurm":
            users[fields[0]] = f"{fields[2]}:{fields[3]}"
    return users

"""Is this a node whose GPUs are stand-ins (a lab, a test node), or a real one whose driver is missing?

The kernel answers, not a setting: hardware that is there shows itself on the PCI bus, and a driver as a module. Files
alone are not evidence, as any user can create them.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# the number of NVIDIA's own devices, on every kernel
NVIDIA_MAJOR = 195
_VENDOR, _GPU_CLASSES = "0x10de", ("0x0300", "0x0302")
# only the nodes of `deepopsctl lab` have it: on a laptop with a GPU, a lab in containers sees the laptop's bus
_LAB = "usr/local/lib/lab/init"
_NOBODY = (errno.ENXIO, errno.ENODEV)


def simulated(root: Path = Path("/")) -> str:
    """What these GPUs really are, where they are not GPUs; '' where they are, or where there are none at all."""
    files = sorted(root.glob("dev/nvidia[0-9]*"))
    if not files:
        return ""
    if (root / _LAB).exists():
        return "simulated GPUs of a lab: nothing to measure"
    if (root / "sys/module/nvidia").exists() or _on_the_bus(root) or not all(map(stands_in, files)):
        return ""
    names = ", ".join("/" + path.relative_to(root).as_posix() for path in files)
    return f"simulated GPUs: {names} without hardware on the PCI bus and without a driver: nothing to measure"


def stands_in(path: Path) -> bool:
    """True for a device file that no NVIDIA driver answers for. True also for one that this job may not open."""
    status = path.stat()
    if not stat.S_ISCHR(status.st_mode) or os.major(status.st_rdev) != NVIDIA_MAJOR:
        return True
    try:
        os.close(os.open(str(path), os.O_RDWR | os.O_NONBLOCK))
    except PermissionError:
        return True
    except OSError as error:
        return error.errno in _NOBODY
    return False


def _on_the_bus(root: Path) -> bool:
    """An NVIDIA GPU on the PCI bus, whatever drives it."""
    for device in root.glob("sys/bus/pci/devices/*"):
        try:
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            device_class = (device / "class").read_text(encoding="ascii").strip()
        except OSError:
            continue
        if vendor == _VENDOR and device_class.startswith(_GPU_CLASSES):
            return True
    return False

"""A node's counters before and after a load: memory errors, machine checks, temperature, PCIe. Only reads.

Everything is read as the user that the job runs as; what can't be read is None, never zero.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

_KERNEL_LOG = "/dev/kmsg"
# lines of /proc/interrupts: exceptions of the machine-check architecture, and interrupts of the thermal monitor
_MACHINE_CHECKS, _THERMAL = "MCE", "TRM"
_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_TROUBLE = re.compile(
    r"NVRM: Xid|Machine [Cc]heck|Hardware Error|EDAC .*(CE|UE)|AER: .*[Ee]rror|temperature above threshold|"
    r"soft lockup|hard LOCKUP|blocked for more than"
)
_MOST_LINES = 10


def counters(root: Path = Path("/")) -> dict[str, int | None]:
    """Every counter that only grows, by name."""
    edac = root / "sys/devices/system/edac/mc"
    cpus = root / "sys/devices/system/cpu"
    pci = root / "sys/bus/pci/devices"
    return {
        "memory_corrected": _sum(edac.glob("mc*/ce_count")),
        "memory_uncorrected": _sum(edac.glob("mc*/ue_count")),
        "machine_checks": _interrupts(root / "proc/interrupts", _MACHINE_CHECKS),
        "thermal_interrupts": _interrupts(root / "proc/interrupts", _THERMAL),
        "throttled": _sum(cpus.glob("cpu*/thermal_throttle/*_throttle_count")),
        "pcie_corrected": _aer(pci.glob("*/aer_dev_correctable"), "TOTAL_ERR_COR"),
        "pcie_uncorrected": _add(
            _aer(pci.glob("*/aer_dev_nonfatal"), "TOTAL_ERR_NONFATAL"),
            _aer(pci.glob("*/aer_dev_fatal"), "TOTAL_ERR_FATAL"),
        ),
    }


def difference(before: dict[str, int | None], after: dict[str, int | None]) -> dict[str, int | None]:
    """How far each counter went up; None where it can't be read."""
    increases: dict[str, int | None] = {}
    for name, last in after.items():
        first = before.get(name)
        increases[name] = None if first is None or last is None else last - first
    return increases


def temperature(root: Path = Path("/")) -> float | None:
    """The hottest processor, in degrees Celsius; None without a sensor."""
    temperatures = []
    for monitor in (root / "sys/class/hwmon").glob("hwmon*"):
        if _text(monitor / "name") in _PROCESSORS:
            temperatures += [_text(path) for path in monitor.glob("temp*_input")]
    values = [int(text) / 1000 for text in temperatures if text and text.lstrip("-").isdigit()]
    return max(values) if values else None


class KernelLog:
    """Lines of the kernel log, if this user may read it: those to come, or those of the last `past_s` seconds as well.

    A line is `priority,number,microseconds,flags;text` (Documentation/ABI/testing/dev-kmsg of the kernel).
    """

    def __init__(self, path: str = _KERNEL_LOG, past_s: float = 0.0) -> None:
        self._handle: int | None = None
        self.obstacle = ""
        self._since_us = (time.monotonic() - past_s) * 1e6 if past_s else 0.0
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            # it begins with the oldest line that the kernel still has
            if not past_s:
                os.lseek(self._handle, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self.obstacle = f"the kernel log can't be read by a user: {error.strerror}"

    def result(self) -> dict[str, Any]:
        """As in a result: `lines` that report hardware errors, or the `obstacle`."""
        return {"obstacle": self.obstacle} if self.obstacle else {"lines": self.trouble()}

    def trouble(self) -> list[str]:
        """The first lines since then that report hardware errors."""
        matches = []
        while self._handle is not None:
            try:
                record = os.read(self._handle, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # lines that were overwritten before they were read
                continue
            except OSError:
                break
            if not record:
                break
            head, _, text = record.decode(errors="replace").partition("\n")[0].partition(";")
            if _TROUBLE.search(text) and float(head.split(",")[2]) >= self._since_us:
                matches.append(text[:200])
        return matches[:_MOST_LINES]

    def close(self) -> None:
        """Let go of it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _sum(paths: Any) -> int | None:
    values = [int(text) for path in paths if (text := _text(path)).isdigit()]
    return sum(values) if values else None


def _add(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _aer(paths: Any, total: str) -> int | None:
    """The totals of PCIe's advanced error reporting, over all devices that have it."""
    values = []
    for path in paths:
        for line in _text(path).splitlines():
            name, _, number = line.rpartition(" ")
            if name == total and number.isdigit():
                values.append(int(number))
    return sum(values) if values else None


def _interrupts(path: Path, name: str) -> int | None:
    for line in _text(path).splitlines():
        head, _, rest = line.partition(":")
        if head.strip() == name:
            return sum(int(word) for word in rest.split() if word.isdigit())
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

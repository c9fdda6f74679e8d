"""The GPUs of this node as NVML knows them: one plain dict each. Unknown values are None, never guessed."""

from __future__ import annotations

import ctypes
from typing import Any

from . import nvmlabi as abi
from .nvml import Nvml, NvmlError, known


def driver_facts(nvml: Nvml) -> dict[str, Any]:
    """Versions: the driver's, NVML's, and the CUDA version that the driver serves (13000 -> 13.0)."""
    cuda = known(lambda: nvml.number("nvmlSystemGetCudaDriverVersion_v2", value_type=ctypes.c_int))
    return {
        "driver": known(lambda: nvml.text("nvmlSystemGetDriverVersion")),
        "nvml": known(lambda: nvml.text("nvmlSystemGetNVMLVersion")),
        "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    }


def inventory(nvml: Nvml) -> list[dict[str, Any]]:
    """Every GPU; one that can't be queried has only `error` and its index."""
    gpus = []
    for index, handle in nvml.handles():
        if isinstance(handle, str):
            gpus.append({"index": index, "error": handle})
            continue
        try:
            gpus.append({"index": index, **gpu_facts(nvml, handle)})
        except NvmlError as error:
            gpus.append({"index": index, "error": str(error)})
    return gpus


def gpu_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, Any]:
    """One GPU, idle or not."""
    return {
        "name": known(lambda: nvml.text("nvmlDeviceGetName", handle)),
        "uuid": known(lambda: nvml.text("nvmlDeviceGetUUID", handle)),
        "serial": known(lambda: nvml.text("nvmlDeviceGetSerial", handle, size=abi.SERIAL_TEXT)),
        "vbios": known(lambda: nvml.text("nvmlDeviceGetVbiosVersion", handle)),
        "minor": known(lambda: nvml.number("nvmlDeviceGetMinorNumber", handle)),
        "pci": known(lambda: pci_address(nvml, handle)),
        "memory_mib": known(lambda: memory_mib(nvml, handle)),
        "persistence": _flag(nvml, "nvmlDeviceGetPersistenceMode", handle),
        "mig": known(lambda: _pair(nvml, "nvmlDeviceGetMigMode", handle)),
        "processes": known(lambda: processes(nvml, handle)),
        "ecc": ecc_facts(nvml, handle),
        "rows": known(lambda: remapped_rows(nvml, handle)),
        "retirement_pending": _flag(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", handle),
        "pcie": pcie_facts(nvml, handle),
        "clocks": clock_facts(nvml, handle),
        "power": power_facts(nvml, handle),
        "temperature": temperature_facts(nvml, handle),
        "nvlinks": nvlinks(nvml, handle),
        "fabric": known(lambda: fabric(nvml, handle)),
    }


def pci_address(nvml: Nvml, handle: abi.Handle) -> str:
    """As Linux writes it: 0000:1b:00.0."""
    info = abi.PciInfo()
    nvml.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(info))
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def memory_mib(nvml: Nvml, handle: abi.Handle) -> int:
    """All of its memory, including the driver's reservation."""
    memory: Any = abi.versioned(abi.Memory, 2)
    nvml.call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    return int(memory.total) // 2**20


def processes(nvml: Nvml, handle: abi.Handle) -> int:
    """How many processes compute on the GPU now."""
    count = ctypes.c_uint(0)
    try:
        nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), None)
    except NvmlError as error:
        # queried without a buffer: the count is returned with this error
        if error.code != abi.INSUFFICIENT_SIZE:
            raise
    return count.value


def ecc_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, Any] | None:
    """ECC on or off, now and after a reboot, and errors since the driver was loaded and over the GPU's life."""
    modes = known(lambda: _pair(nvml, "nvmlDeviceGetEccMode", handle))
    if modes is None:
        return None

    def errors(error_type: int, since: int) -> int | None:
        name = "nvmlDeviceGetTotalEccErrors"
        count: int | None = known(lambda: nvml.number(name, handle, error_type, since, value_type=ctypes.c_ulonglong))
        return count

    return {
        "mode": modes,
        "corrected": errors(abi.CORRECTED, abi.VOLATILE),
        "uncorrected": errors(abi.UNCORRECTED, abi.VOLATILE),
        "corrected_ever": errors(abi.CORRECTED, abi.AGGREGATE),
        "uncorrected_ever": errors(abi.UNCORRECTED, abi.AGGREGATE),
    }


def remapped_rows(nvml: Nvml, handle: abi.Handle) -> dict[str, Any]:
    """Rows of memory that spares stand in for (Ampere and later)."""
    values = [ctypes.c_uint() for _ in range(4)]
    nvml.call("nvmlDeviceGetRemappedRows", handle, *(ctypes.byref(value) for value in values))
    corrected, uncorrected, pending, failed = (value.value for value in values)
    return {"corrected": corrected, "uncorrected": uncorrected, "pending": bool(pending), "failed": bool(failed)}


def pcie_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, int | None]:
    """The link: now, the most that GPU and slot can do together, the most that the GPU can. An idle link is slow."""
    questions = {
        "generation": "nvmlDeviceGetCurrPcieLinkGeneration",
        "width": "nvmlDeviceGetCurrPcieLinkWidth",
        "max_generation": "nvmlDeviceGetMaxPcieLinkGeneration",
        "max_width": "nvmlDeviceGetMaxPcieLinkWidth",
        "gpu_generation": "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        "replays": "nvmlDeviceGetPcieReplayCounter",
    }
    return {key: _number(nvml, name, handle) for key, name in questions.items()}


def clock_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, Any]:
    """MHz, and what holds the clocks down at this moment."""
    return {
        "sm": _number(nvml, "nvmlDeviceGetClockInfo", handle, abi.CLOCK_SM),
        "memory": _number(nvml, "nvmlDeviceGetClockInfo", handle, abi.CLOCK_MEMORY),
        "max_sm": _number(nvml, "nvmlDeviceGetMaxClockInfo", handle, abi.CLOCK_SM),
        "max_memory": _number(nvml, "nvmlDeviceGetMaxClockInfo", handle, abi.CLOCK_MEMORY),
        "slowdowns": slowdowns(nvml, handle),
    }


def slowdowns(nvml: Nvml, handle: abi.Handle) -> list[str] | None:
    """Why the clocks are not higher; None if the driver doesn't report it."""
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        bits = _number(nvml, name, handle, value_type=ctypes.c_ulonglong)
        if bits is not None:
            return [word for bit, word in abi.SLOWDOWNS.items() if bits & bit]
    return None


def power_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, float | None]:
    """Watts: drawn now, the limit in force, and the limit as it comes from the factory."""
    questions = {
        "draw": "nvmlDeviceGetPowerUsage",
        "limit": "nvmlDeviceGetEnforcedPowerLimit",
        "default_limit": "nvmlDeviceGetPowerManagementDefaultLimit",
    }
    asked = {key: _number(nvml, name, handle) for key, name in questions.items()}
    return {key: None if milliwatts is None else milliwatts / 1000 for key, milliwatts in asked.items()}


def temperature_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, int | None]:
    """Degrees Celsius: now, and where the GPU slows down and shuts down."""
    return {
        "now": _number(nvml, "nvmlDeviceGetTemperature", handle, abi.TEMPERATURE_GPU),
        **{
            word: _number(nvml, "nvmlDeviceGetTemperatureThreshold", handle, threshold)
            for word, threshold in abi.THRESHOLDS.items()
        },
    }


def nvlinks(nvml: Nvml, handle: abi.Handle) -> list[bool] | None:
    """For every link that the GPU has, whether it is up; None without NVLink."""
    states = [_flag(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(abi.MAX_NVLINKS)]
    return [state for state in states if state is not None] or None


def fabric(nvml: Nvml, handle: abi.Handle) -> dict[str, Any]:
    """Whether the GPU has joined the fabric of its NVSwitches: without it no CUDA program starts on such a node."""
    info: Any = abi.versioned(abi.FabricInfo, 2)
    nvml.call("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info))
    return {
        "state": abi.FABRIC_STATES.get(info.state, str(info.state)),
        "status": info.status,
        "faults": [word for shift, word in abi.FABRIC_FAULTS.items() if info.health >> shift & 3 == 1],
    }


def load_facts(nvml: Nvml, handle: abi.Handle) -> dict[str, Any]:
    """What moves while a GPU works: sampled during measurements."""
    return {
        "sm": _number(nvml, "nvmlDeviceGetClockInfo", handle, abi.CLOCK_SM),
        "power": _number(nvml, "nvmlDeviceGetPowerUsage", handle),
        "temperature": _number(nvml, "nvmlDeviceGetTemperature", handle, abi.TEMPERATURE_GPU),
        "generation": _number(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "width": _number(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        "slowdowns": slowdowns(nvml, handle),
    }


def _number(nvml: Nvml, name: str, *arguments: Any, value_type: Any = ctypes.c_uint) -> int | None:
    value: int | None = known(lambda: nvml.number(name, *arguments, value_type=value_type))
    return value


def _flag(nvml: Nvml, name: str, *arguments: Any) -> bool | None:
    value = _number(nvml, name, *arguments)
    return None if value is None else bool(value)


def _pair(nvml: Nvml, name: str, handle: abi.Handle) -> dict[str, bool]:
    now, pending = ctypes.c_uint(), ctypes.c_uint()
    nvml.call(name, handle, ctypes.byref(now), ctypes.byref(pending))
    return {"now": bool(now.value), "after_reboot": bool(pending.value)}

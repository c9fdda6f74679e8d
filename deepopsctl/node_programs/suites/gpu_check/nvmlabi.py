"""Structures and numbers of NVML's C interface, from the public nvml.h (12.9); sizes are checked by a test."""

from __future__ import annotations

import ctypes

Handle = ctypes.c_void_p

# nvmlReturn_t
SUCCESS, NOT_SUPPORTED, NO_PERMISSION, INSUFFICIENT_SIZE = 0, 3, 4, 7
DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, MISMATCH = 9, 15, 16, 18

# buffers
LONG_TEXT, SERIAL_TEXT = 96, 32

# enumerations
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
CLOCK_SM, CLOCK_MEMORY = 1, 2
TEMPERATURE_GPU = 0
THRESHOLDS = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3}
MAX_NVLINKS = 18
# pairs of bits of nvmlGpuFabricInfo_v2_t.healthMask: offset -> meaning of 1
FABRIC_FAULTS = {0: "degraded bandwidth", 2: "route recovery", 4: "unhealthy route", 6: "recovery from access timeouts"}
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}

# nvmlClocksEventReasons: bit -> word
SLOWDOWNS = {
    0x01: "idle",
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t, for nvmlDeviceGetPciInfo_v3."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t, in bytes."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t: how far the GPU has come with its NVSwitch fabric."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("health", ctypes.c_uint),
    ]


def versioned(struct_type: type[ctypes.Structure], version: int) -> ctypes.Structure:
    """An empty structure with its version set, as NVML_STRUCT_VERSION does."""
    made = struct_type()
    made.version = ctypes.sizeof(struct_type) | version << 24
    return made

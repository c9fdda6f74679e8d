"""Results of gpucheck, CONSTRUCTED: nodes with eight GPUs and faults. Recorded ones are in tests/data/gpus."""

from __future__ import annotations

from typing import Any

Gpu = dict[str, Any]
Result = dict[str, Any]
TESTS = ("memory_bandwidth", "memory_test", "host_link", "fp32", "bf16", "bf16_gemm")
WHEN = "2026-11-21T12:00:00+00:00"


def measured(copy: float = 3000.0, h2d: float = 55.0) -> dict[str, Any]:
    """What a worker hands back for a healthy H100."""
    return {
        "memory_bandwidth": {"status": "measured", "copy_gb_s": copy, "triad_gb_s": 3010.0},
        "memory_test": {"status": "measured", "tested_mib": 72000, "patterns": 5},
        "host_link": {
            "status": "measured",
            "h2d": [{"bytes": 65536, "gb_s": 9.0}, {"bytes": 268435456, "gb_s": h2d}],
            "d2h": [{"bytes": 65536, "gb_s": 8.0}, {"bytes": 268435456, "gb_s": 54.0}],
        },
        "fp32": {"status": "measured", "fp32_tflop_s": 61.0},
        "bf16": {"status": "measured", "bf16_tflop_s": 600.0},
        "bf16_gemm": {"status": "skip", "message": "no cuBLAS: use --cublas PATH"},
    }


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """One healthy H100; `changes` replace whole keys."""
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-00000000-0000-0000-0000-0000000000{index:02d}",
        "serial": f"16500000000{index:02d}",
        "vbios": "96.00.00.00.01",
        "minor": index,
        "pci": f"0000:{0x1B + index:02x}:00.0",
        "memory_mib": 81559,
        "persistence": True,
        "mig": {"now": False, "after_reboot": False},
        "processes": 0,
        "ecc": {
            "mode": {"now": True, "after_reboot": True},
            "corrected": 0, "uncorrected": 0, "corrected_ever": 3, "uncorrected_ever": 0,
        },
        "rows": {"corrected": 0, "uncorrected": 0, "pending": False, "failed": False},
        "retirement_pending": None,
        "pcie": {
            "generation": 1, "width": 16, "max_generation": 5, "max_width": 16, "gpu_generation": 5, "replays": 0,
        },
        "clocks": {"sm": 345, "memory": 2619, "max_sm": 1980, "max_memory": 2619, "slowdowns": ["idle"]},
        "power": {"draw": 70.1, "limit": 700.0, "default_limit": 700.0},
        "temperature": {"now": 31, "shutdown": 92, "slowdown": 89, "memory_max": 95, "gpu_max": 87},
        "nvlinks": [True] * 18,
        "fabric": {"state": "completed", "status": 0, "faults": []},
        "load": {
            "sm": 1755, "power": 640.2, "temperature": 58, "generation": 5, "width": 16, "slowdowns": ["power cap"],
            "samples": 30,
        },
        "measured": measured(),
        **changes,
    }  # fmt: skip


def pairs(count: int, gb_s: float = 370.0) -> list[dict[str, Any]]:
    """Every GPU to every other one."""
    return [
        {"from": one, "to": other, "direct": True, "gb_s": gb_s}
        for one in range(count)
        for other in range(count)
        if one != other
    ]


def result(node: str = "gpu01", gpus: list[Gpu] | None = None, **changes: Any) -> Result:
    """One node with eight healthy H100."""
    listed = [gpu(index) for index in range(8)] if gpus is None else gpus
    return {
        "schema": 1,
        "node": node,
        "when": WHEN,
        "kernel": "6.12.1",
        "versions": {"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": "13.0"},
        "gpus": listed,
        "group": together(len(listed)),
        **changes,
    }


def together(count: int) -> dict[str, Any]:
    """What the GPUs of a node do with each other."""
    if count < 2:
        alone = {"status": "skip", "message": "one GPU: there is no other to talk to"}
        return {"peers": alone, "all_reduce": alone}
    points = [{"bytes": 4096, "gb_s": 0.3}, {"bytes": 2**30, "gb_s": 410.0}]
    return {
        "peers": {"status": "measured", "pairs": pairs(count)},
        "all_reduce": {"status": "measured", "ranks": count, "all_reduce": points},
    }


def without_driver(node: str = "cpu01") -> Result:
    """A node that has no NVIDIA driver."""
    problem = "libnvidia-ml.so.1 can't be loaded: no NVIDIA driver here?"
    return result(node, [], versions={}, group={}, problem=problem)

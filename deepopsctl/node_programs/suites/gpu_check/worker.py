"""The process that touches GPUs: one job in, one JSON object out. It dies alone when a GPU takes it down.

`CUDA_VISIBLE_DEVICES` holds the GPUs of the job, by UUID. Run by measuring.py, never by a person.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable

from .cuda import Cuda, CudaError, Gpu, NoCudaError
from .device_tests import (
    Bench,
    NotPossibleError,
    WrongResultError,
    bf16_rate,
    fp32_rate,
    memory_bandwidth,
    memory_test,
)
from .libraries import LibraryError, all_reduce, matrix_rate
from .links import host_link, peer_links, stay_near

ON_ONE: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "memory_bandwidth": memory_bandwidth,
    "memory_test": memory_test,
    "host_link": host_link,
    "fp32": fp32_rate,
    "bf16": bf16_rate,
}


def main() -> None:
    """Read the job from stdin, write what came of it to stdout."""
    job = json.load(sys.stdin)
    # libraries (NCCL) may print: only the JSON object may go to stdout
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(work(job), answer)
    answer.close()


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Test -> {"status": "measured" | "skip" | "wrong" | "error", "message", values}."""
    try:
        cuda = Cuda()
        if job["kind"] == "group":
            return across(cuda, job)
        return on_one(cuda, job)
    except NoCudaError as error:
        return every(job, "skip", str(error))
    except CudaError as error:
        return every(job, "error", str(error))


def every(job: dict[str, Any], status: str, message: str) -> dict[str, Any]:
    """The same for all tests of a job."""
    return {name: {"status": status, "message": message} for name in job["tests"]}


def on_one(cuda: Cuda, job: dict[str, Any]) -> dict[str, Any]:
    """The tests of one GPU. After an error the GPU's context is lost: what is left is not tried."""
    if job.get("pci"):
        stay_near(job["pci"])
    gpu = Gpu(cuda)
    if gpu.uuid() != job["uuid"]:
        text = f"CUDA gives {gpu.uuid()} where NVML has {job['uuid']}"
        return every(job, "skip", text)
    bench = Bench(gpu)
    tests: dict[str, Callable[[], dict[str, Any]]] = {
        name: lambda measure=measure: measure(bench)  # type: ignore[misc]  # bound now, called later
        for name, measure in ON_ONE.items()
    }
    tests["bf16_gemm"] = lambda: matrix_rate(bench, job["cublas"])
    outcomes: dict[str, Any] = {}
    for name in job["tests"]:
        if any(result["status"] == "error" for result in outcomes.values()):
            outcomes[name] = {"status": "skip", "message": "an earlier measurement failed on this GPU"}
        else:
            outcomes[name] = tried(tests[name])
    return outcomes


def across(cuda: Cuda, job: dict[str, Any]) -> dict[str, Any]:
    """The tests that need all GPUs of the job in one process."""
    if cuda.count() != job["gpus"]:
        return every(job, "skip", f"CUDA opens {cuda.count()} of {job['gpus']} GPUs")
    tests: dict[str, Callable[[], dict[str, Any]]] = {
        "peers": lambda: {"pairs": peer_links(cuda)},
        "all_reduce": lambda: all_reduce(cuda, job["nccl"]),
    }
    return {name: tried(tests[name]) for name in job["tests"]}


def tried(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a measurement gave, or why it gave nothing."""
    try:
        return {"status": "measured", **measure()}
    except (NotPossibleError, NoCudaError) as error:
        return {"status": "skip", "message": str(error)}
    except WrongResultError as error:
        return {"status": "wrong", "message": str(error)}
    except (CudaError, LibraryError) as error:
        return {"status": "error", "message": str(error)}

"""Inventory, then measurements: each GPU in a process of its own, with a limit, watched through NVML meanwhile."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Callable, NamedTuple

from .dcgm import diagnosis
from .inventory import driver_facts, inventory, load_facts
from .network import network
from .nvml import MissingError, Nvml, NvmlError
from .results import gave_number
from .simulated import simulated

SCHEMA = 1
TESTS = ("memory_bandwidth", "memory_test", "host_link", "fp32", "bf16")
GROUP_TESTS = ("peers", "all_reduce")
_SAMPLE_S = 0.2
_DYING_S = 10
# spelled out: inside a zip file, Python 3.8 sets __package__ only after the import
_WORKER = "from deepopsctl.node_programs.suites.gpu_check.worker import main; main()"


class Order(NamedTuple):
    """What to measure. Paths of libraries are '' where the test that needs them is to be skipped."""

    measure: bool = True
    busy_too: bool = False
    cublas: str = ""
    nccl: str = ""
    timeout_s: float = 120.0


def measure_node(order: Order, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """The result of this node, as in docs/reference/gpucheck.md; `report_progress` gets what is being measured."""
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "node": platform.node().partition(".")[0],
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "versions": {},
        "gpus": [],
        "group": {},
        "network": network(),
    }
    try:
        nvml = Nvml()
    except (MissingError, NvmlError) as error:
        return {**result, "problem": str(error), **_stand_ins()}
    try:
        result["versions"] = driver_facts(nvml)
        result["gpus"] = inventory(nvml)
    except (MissingError, NvmlError) as error:
        return {**result, "problem": str(error)}
    else:
        if not result["gpus"]:
            return {**result, "problem": "the driver sees no GPU"}
        if order.measure:
            result["dcgm"] = diagnosis()
        _measure_all(nvml, order, result, report_progress)
        return result
    finally:
        nvml.close()


def _stand_ins() -> dict[str, str]:
    """Simulated GPUs are reported only if no driver answers: GPUs of a driver are measured."""
    what = simulated()
    return {"simulated": what} if what else {}


def _measure_all(nvml: Nvml, order: Order, result: dict[str, Any], report_progress: Callable[[str], None]) -> None:
    usable = []
    for gpu in result["gpus"]:
        reason = obstacle(gpu, order, os.environ.get("CUDA_VISIBLE_DEVICES"))
        if reason:
            gpu["measured"] = skipped((*TESTS, "bf16_gemm"), reason)
            continue
        usable.append(gpu)
        report_progress(f"measuring GPU {gpu['index']}: {gpu['name']}")
        tests = [*TESTS, *(["bf16_gemm"] if order.cublas else [])]
        job = {"kind": "one", "uuid": gpu["uuid"], "pci": gpu["pci"], "tests": tests, "cublas": order.cublas}
        gpu["measured"], load = run_job(job, [gpu["uuid"]], order.timeout_s, nvml)
        if gave_number(gpu):
            # without a load, clocks and links of a GPU have no meaning
            gpu["load"] = load
        if not order.cublas:
            gpu["measured"].update(
                skipped(("bf16_gemm",), "no cuBLAS: use --cublas PATH, or validate gpu --with-libraries")
            )
    if len(usable) > 1:
        report_progress(f"measuring {len(usable)} GPUs together")
    result["group"] = _group(order, usable)


def _group(order: Order, usable: list[dict[str, Any]]) -> dict[str, Any]:
    if len(usable) < 2:
        few = "no GPU to measure" if not usable else "one GPU: there is no other to talk to"
        return skipped(GROUP_TESTS, few)
    tests = ["peers", *(["all_reduce"] if order.nccl else [])]
    uuids = [gpu["uuid"] for gpu in usable]
    job = {"kind": "group", "tests": tests, "nccl": order.nccl, "gpus": len(usable)}
    outcomes, _ = run_job(job, uuids, order.timeout_s * 2, None)
    for pair in outcomes["peers"].get("pairs", ()):
        pair.update({end: usable[pair[end]]["index"] for end in ("from", "to")})
    return (
        outcomes
        if order.nccl
        else {**outcomes, **skipped(("all_reduce",), "no NCCL: use --nccl PATH, or validate gpu --with-libraries")}
    )


def obstacle(gpu: dict[str, Any], order: Order, visible: str | None) -> str:
    """Why a GPU is not measured; '' where it may be."""
    if not order.measure:
        return "skipped by --inventory"
    if gpu.get("error"):
        return "the driver can't open it: " + str(gpu["error"])
    if not gpu.get("uuid"):
        return "the driver doesn't report its UUID"
    if visible is not None and not is_visible(gpu, visible):
        return f"not in CUDA_VISIBLE_DEVICES={visible}"
    if (gpu.get("mig") or {}).get("now"):
        return "cut into MIG slices: the bounds are for whole GPUs"
    if gpu.get("processes") and not order.busy_too:
        return f"{gpu['processes']} processes compute on it: measuring would disturb them (--busy-too)"
    return ""


def is_visible(gpu: dict[str, Any], visible: str) -> bool:
    """True where CUDA_VISIBLE_DEVICES names the GPU, by index or by (the beginning of) its UUID."""
    for word in visible.split(","):
        if word.strip() == str(gpu["index"]) or (word.startswith("GPU-") and gpu["uuid"].startswith(word.strip())):
            return True
    return False


def skipped(tests: tuple[str, ...], reason: str) -> dict[str, Any]:
    """Results of tests that were not made."""
    return {name: {"status": "skip", "message": reason} for name in tests}


def run_job(
    job: dict[str, Any], uuids: list[str], timeout_s: float, nvml: Nvml | None, program: str = _WORKER
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The worker's results, and what NVML saw meanwhile; a worker that hangs or dies is a result as well."""
    root = Path(os.path.abspath(__file__)).parents[4]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "CUDA_CACHE_DISABLE": "1",  # leave nothing in the user's home
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # files, not pipes: a worker that dies early or talks much can't block or break us
    with TemporaryFile("w+") as order, TemporaryFile("w+") as answer, TemporaryFile("w+") as errors:
        json.dump(job, order)
        order.seek(0)
        worker = subprocess.Popen(
            [sys.executable, "-c", program], stdin=order, stdout=answer, stderr=errors, env=environment, cwd="/"
        )
        try:
            samples = watch(worker, timeout_s, nvml, uuids[0])
        except BaseException:
            # also on Ctrl-C: no worker process may remain on a GPU
            worker.kill()
            raise
        answer.seek(0)
        errors.seek(0)
        outcomes = outcome(worker, answer.read(), errors.read(), job["tests"], timeout_s)
    return outcomes, folded(samples)


def watch(worker: subprocess.Popen[bytes], timeout_s: float, nvml: Nvml | None, uuid: str) -> list[dict[str, Any]]:
    """Samples until the worker ends, or is ended after its time."""
    samples = []
    ends = time.monotonic() + timeout_s
    while worker.poll() is None and time.monotonic() < ends:
        if nvml is not None:
            samples.append(_sample(nvml, uuid))
        time.sleep(_SAMPLE_S)
    if worker.poll() is None:
        worker.kill()
        try:
            worker.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            # stuck in the driver: it can't be killed, so don't wait for it
            return samples
    return samples


def _sample(nvml: Nvml, uuid: str) -> dict[str, Any]:
    handle = ctypes.c_void_p()
    try:
        nvml.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return load_facts(nvml, handle)
    except (MissingError, NvmlError):
        # what is measured counts more than what is seen meanwhile
        return {}


def folded(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """The highest of what was sampled under load, and every reason for lower clocks that came up."""
    reasons = {reason for sample in samples for reason in sample.get("slowdowns") or ()}
    highest = {
        key: max((sample[key] for sample in samples if sample.get(key) is not None), default=None)
        for key in ("sm", "power", "temperature", "generation", "width")
    }
    power = highest["power"]
    return {
        **highest,
        "power": None if power is None else power / 1000,
        "slowdowns": sorted(reasons - {"idle"}),
        "samples": len(samples),
    }


def outcome(
    worker: subprocess.Popen[bytes], answer: str, errors: str, tests: list[str], timeout_s: float
) -> dict[str, Any]:
    """What the worker wrote, else what became of it."""
    if worker.returncode == 0:
        try:
            return dict(json.loads(answer))
        except ValueError:
            pass
    if worker.returncode is None:
        text = "the measuring process hangs in the driver and can't be ended: reboot the node"
    elif worker.returncode == -9:
        text = f"no answer after {timeout_s:.0f} s: the GPU hangs, see dmesg for NVRM: Xid"
    else:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        text = f"the measuring process died ({worker.returncode}): {last}"
    return {name: {"status": "error", "message": text} for name in tests}

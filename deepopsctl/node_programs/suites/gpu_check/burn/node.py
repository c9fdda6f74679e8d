"""Load a whole node for a while: all GPUs, all cores and much of the memory at once, every result verified.

Without a GPU, a counter or a permission the rest is loaded anyway, and the missing part is reported.
"""

from __future__ import annotations

import os
import platform
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ..inventory import driver_facts, inventory
from ..measuring import Order as Measuring, obstacle
from ..nvml import MissingError, Nvml, NvmlError
from ..simulated import simulated
from .memory import MEMORY_SHARE, memory_of_node
from .sensors import KernelLog, counters, difference, temperature
from .watch import GpuWatch
from .workers import Worker, thinned, trend

SCHEMA = 1
_LOOK_S, _SAMPLE_S = 0.25, 1.0
_TELL_S, _TELL_PARTS = 10.0, 20
# time for a started round, slice or memory sweep beyond the end; a silent worker has its own limit
_OVERTIME_S = 120.0

ReportProgress = Callable[[str], None]


class Order(NamedTuple):
    """What to load, and for how long. `stopped` returns why the load has to end now, or ''."""

    seconds: float
    memory_share: float = MEMORY_SHARE
    busy_too: bool = False
    gpus: bool = True
    stopped: Callable[[], str] = str


def burn_node(order: Order, report_progress: ReportProgress) -> dict[str, Any]:
    """The result of this node, as in docs/reference/gpucheck.md; `report_progress` gets its progress."""
    kernel_log, before = KernelLog(), counters()
    started = time.monotonic()
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "node": platform.node().partition(".")[0],
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "asked_s": order.seconds,
    }
    gpu_side = GpuSide(order)
    workers = [*_cores(order), *gpu_side.workers]
    try:
        result["ended"], heat = _wait(order, workers, gpu_side, report_progress)
    finally:
        # in every case: no worker process may remain on a core or a GPU
        for worker in workers:
            if worker.alive:
                worker.kill()
            worker.close()
    ran = time.monotonic() - started
    result["ran_s"] = round(min(ran, order.seconds) if not result["ended"] else ran, 1)
    result.update(_cpu_side(workers, result["ran_s"]))
    result.update(gpu_side.result(result["ran_s"]))
    log = kernel_log.result()
    kernel_log.close()
    return {**result, "counters": difference(before, counters()), "cpu_temperature": heat, "kernel_log": log}


def _wait(
    order: Order, workers: list[Worker], gpu_side: GpuSide, report_progress: ReportProgress
) -> tuple[str, float | None]:
    """Watch until the end; why it ended early ('' where it did not), and the hottest the processors were."""
    started = time.monotonic()
    sampled, reported, heat = 0.0, 0.0, None
    while any(worker.alive for worker in workers):
        reason = order.stopped()
        now = time.monotonic() - started
        if reason:
            return reason, heat
        if now > order.seconds + _OVERTIME_S:
            for worker in workers:
                if worker.alive:
                    worker.give_up(f"it did not end {_OVERTIME_S:.0f} s after its time")
        for worker in workers:
            worker.watch()
        if now - sampled >= _SAMPLE_S:
            sampled, seen = now, temperature()
            gpu_side.sample()
            heat = max(filter(None, (heat, seen)), default=None)
        if reported + max(order.seconds / _TELL_PARTS, _TELL_S) <= now < order.seconds:
            reported = now
            report_progress(f"{now:.0f} of {order.seconds:.0f} s")
        time.sleep(_LOOK_S)
    return order.stopped(), heat


def _cores(order: Order) -> list[Worker]:
    """One process for every core of the allocation, each with its part of the memory."""
    cores = sorted(os.sched_getaffinity(0))
    share = int(memory_allowed() * order.memory_share) // len(cores)
    return [Worker("core", {"core": core, "memory": share, "seconds": order.seconds}) for core in cores]


def memory_allowed(environment: dict[str, str] | None = None) -> int:
    """Bytes that this job may use: Slurm's allocation, and never more than what is free."""
    variables = os.environ if environment is None else environment
    _, available = memory_of_node()
    per_node = variables.get("SLURM_MEM_PER_NODE", "")
    limits = [available, *([int(per_node) * 2**20] if per_node.isdigit() and int(per_node) else []), *_cgroup_limit()]
    return min(limits)


def _cgroup_limit(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """The tightest limit of the control groups around this process (version 2), where there is one."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    own = next((line[3:] for line in lines if line.startswith("0::")), "")
    limits = []
    for directory in (Path(own.lstrip("/")), *Path(own.lstrip("/")).parents):
        try:
            text = (root / directory / "memory.max").read_text(encoding="ascii").strip()
        except OSError:
            continue
        limits += [int(text)] if text.isdigit() else []
    return limits


def _cpu_side(workers: list[Worker], seconds: float) -> dict[str, Any]:
    cores = [worker for worker in workers if worker.module == "core"]
    faults = [
        {"core": worker.order["core"], **worker.end}
        for worker in cores
        if worker.end.get("status") in ("wrong", "error")
    ]
    return {
        "cpu": {
            "cores": len(cores),
            "rounds": sum(worker.totals["rounds"] for worker in cores),
            "rates": [
                {"core": worker.order["core"], **trend(worker.rates.get("rounds", []), seconds)} for worker in cores
            ],
            "faults": [fault for fault in faults if fault["where"] == "cpu"],
        },
        "memory": {
            "mib": sum(worker.totals["bytes"] for worker in cores) // 2**20,
            "verified_mib": sum(worker.totals["verified"] for worker in cores) // 2**20,
            "faults": [fault for fault in faults if fault["where"] == "memory"],
        },
    }


class GpuSide:
    """The GPUs that may be loaded, and their workers; what is not loaded has its reason."""

    def __init__(self, order: Order) -> None:
        self.workers: list[Worker] = []
        self._watch: GpuWatch | None = None
        self._result: dict[str, Any] = {"gpus": [], "versions": {}}
        if not order.gpus:
            return
        try:
            nvml = Nvml()
            self._result["versions"] = driver_facts(nvml)
            gpus = inventory(nvml)
        except (MissingError, NvmlError) as error:
            stand_ins = simulated()
            self._result.update({"problem": str(error), **({"simulated": stand_ins} if stand_ins else {})})
            return
        if not gpus:
            self._result["problem"] = "the driver sees no GPU"
        self._result["gpus"] = gpus
        measuring = Measuring(busy_too=order.busy_too)
        for gpu in gpus:
            reason = obstacle(gpu, measuring, os.environ.get("CUDA_VISIBLE_DEVICES"))
            if reason:
                gpu["burn"] = {"status": "skip", "message": reason}
                continue
            job = {"uuid": gpu["uuid"], "pci": gpu["pci"], "seconds": order.seconds}
            self.workers.append(Worker("gpu", job, {"CUDA_VISIBLE_DEVICES": gpu["uuid"]}))
        loaded = [gpu for gpu in gpus if "burn" not in gpu]
        self._watch = GpuWatch(nvml, loaded) if loaded else None

    def sample(self) -> None:
        """Sample the GPUs once."""
        if self._watch:
            self._watch.sample()

    def result(self, seconds: float) -> dict[str, Any]:
        """What came of it, GPU by GPU."""
        by_uuid = {worker.order["uuid"]: worker for worker in self.workers}
        for gpu in self._result["gpus"]:
            worker = by_uuid.get(gpu.get("uuid") or "")
            if worker is None or self._watch is None:
                continue
            gpu["burn"] = {
                "status": worker.end.get("status", "measured"),
                "message": worker.end.get("message", ""),
                "verified_mib": worker.totals["verified"] // 2**20,
                "rates": {
                    test: {**trend(points, seconds), "points": thinned(points)} for test, points in worker.rates.items()
                },
                "watched": self._watch.result(gpu["uuid"]),
            }
        return self._result

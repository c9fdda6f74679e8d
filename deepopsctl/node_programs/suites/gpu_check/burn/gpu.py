"""The process that loads one GPU, all of it: matrix units, fp32, memory traffic, and patterns that stay in its memory.

Run by node.py, never by a person; `CUDA_VISIBLE_DEVICES` holds the GPU. Argument: one JSON object with `uuid`, `pci`
and `seconds`. After every slice of work it writes a line of JSON: `test` and `rate`, or bytes `verified`; `wrong` (a
result was not right), `error` (the driver refused) and `skip` (not possible) are last lines.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Callable

from ..cuda import Cuda, CudaError, Gpu, NoCudaError, Pointer
from ..device_tests import GIB, PATTERNS, Bench, Bf16, Fp32, NotPossibleError, WrongResultError
from ..links import stay_near

# seconds of one slice of each type; one cycle has all of them
SLICES = {"bf16": 3.0, "fp32": 1.0, "memory": 1.0}
UNITS = {"bf16": "TFLOP/s", "fp32": "TFLOP/s", "memory": "GB/s"}
# of what is free, the rest stays for the driver
_HELD_SHARE = 0.8
_TRAFFIC_BYTES = GIB


def main() -> None:
    """Load the GPU until time is up, something is wrong, or the parent process has ended."""
    order = json.loads(sys.argv[1])
    # Slurm ends all processes of a job at once: the one that reports ends the others
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    parent = os.getppid()
    for line in load(order, lambda: os.getppid() == parent):
        answer.write(json.dumps(line) + "\n")
        answer.flush()


def load(order: dict[str, Any], wanted: Callable[[], bool], library: str = "") -> Iterator[dict[str, Any]]:
    """The lines; `wanted()` turns false when the reader has gone."""
    try:
        gpu = Gpu(Cuda(library) if library else Cuda())
        if gpu.uuid() != order["uuid"]:
            yield {"skip": f"CUDA gives {gpu.uuid()} where NVML has {order['uuid']}"}
            return
        if order.get("pci"):
            stay_near(order["pci"])
        with ExitStack() as stack:
            yield from _cycles(Bench(gpu), stack, order["seconds"], wanted)
    except (NoCudaError, NotPossibleError) as error:
        yield {"skip": str(error)}
    except WrongResultError as error:
        yield {"wrong": str(error)}
    except CudaError as error:
        yield {"error": str(error)}


def _cycles(bench: Bench, stack: ExitStack, seconds: float, wanted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    traffic = Traffic(bench, stack)
    held = Held(bench, stack)
    held.self_test()
    parts: list[tuple[str, Callable[[float], float]]] = []
    # older than Ampere: fp32 alone is the load
    with suppress(NotPossibleError):
        parts.append(("bf16", Bf16(bench).sustained))
    parts += [("fp32", Fp32(bench).sustained), ("memory", traffic.sustained)]
    ends = time.monotonic() + seconds
    while True:
        for name, sustained in parts:
            left = ends - time.monotonic()
            if left <= 0 or not wanted():
                return
            yield {"test": name, "rate": sustained(min(SLICES[name], left))}
        yield {"verified": held.turn()}


class Traffic:
    """Copies from one part of the memory to another, checked word by word."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        free, _ = bench.gpu.memory()
        self._bench = bench
        self._size = min(_TRAFFIC_BYTES, free // 16) // 65536 * 65536
        if not self._size:
            raise NotPossibleError(f"only {free // 2**20} MiB of its memory are free")
        self._source = stack.enter_context(bench.gpu.buffer(self._size))
        self._sink = stack.enter_context(bench.gpu.buffer(self._size))
        bench.fill(self._source, self._size, *PATTERNS[-1])

    def sustained(self, seconds: float) -> float:
        """GB/s, read and written."""
        bench, quads = self._bench, ctypes.c_ulonglong(self._size // 16)
        spent, done = 0.0, 0.0
        # what an earlier slice left there must not pass for this one's
        bench.fill(self._sink, self._size, 0)
        with bench.gpu.stopwatch() as watch:
            ends = time.monotonic() + seconds
            while not spent or time.monotonic() < ends:
                watch.start()
                for _ in range(16):
                    bench.launch("copy", self._sink, self._source, quads)
                spent += watch.stop()
                done += 16 * 2 * self._size
        bench.demand("copy", self._sink, self._size, *PATTERNS[-1])
        return done / spent / 1e9


class Held:
    """Most of the memory, under a pattern that stays there while the GPU works."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        free, _ = bench.gpu.memory()
        self._bench, self._number = bench, len(PATTERNS) - 1
        self._size = int(free * _HELD_SHARE) // 65536 * 65536
        self._memory = stack.enter_context(bench.gpu.buffer(self._size))
        self._fill()

    def self_test(self) -> None:
        """Plant an error: a test that does not find it is none."""
        planted = self._size // 8 * 4
        there = Pointer(self._memory.value + planted)
        good = self._bench.gpu.read(there, 4)
        self._bench.gpu.write(there, bytes(byte ^ 0x10 for byte in good))
        if self._bench.wrong_words(self._memory, self._size, *PATTERNS[self._number]) != (1, planted // 4):
            raise WrongResultError("the memory test did not find the error that it had planted")
        self._bench.gpu.write(there, good)

    def turn(self) -> int:
        """Verify what was written, write the next pattern; how many bytes were verified."""
        self._bench.demand("memory under load", self._memory, self._size, *PATTERNS[self._number])
        self._number = (self._number + 1) % len(PATTERNS)
        self._fill()
        return self._size

    def _fill(self) -> None:
        self._bench.fill(self._memory, self._size, *PATTERNS[self._number])

"""Measurements on one GPU. Every one checks what the GPU made, and raises WrongResultError where it is not right."""

from __future__ import annotations

import array
import ctypes
import pkgutil
import time
from abc import ABC, abstractmethod
from typing import Any, Callable

from .cuda import BLOCK, Gpu, Module, Pointer

GIB = 2**30
_LEAST_BYTES = 64 * 2**20
_ROUNDS = 5
_SECONDS = 0.4
# (seed, step): all zeros, all ones, both chequered ones, and every word different
PATTERNS = ((0, 0), (0xFFFFFFFF, 0), (0xAAAAAAAA, 0), (0x55555555, 0), (0x5BD1E995, 0x9E3779B1))
_ADDRESSED = PATTERNS[-1]
_ONE, _TWO, _SEVEN = 0x3F800000, 0x40000000, 0x40E00000


class WrongResultError(Exception):
    """The GPU computed or stored something wrong: whatever its speed, it must not run jobs."""


class NotPossibleError(Exception):
    """This GPU or this moment does not allow the measurement; the text has the reason."""


def kernels(name: str) -> bytes:
    """The PTX of one file in kernels/; also where the package is one zip file."""
    text = pkgutil.get_data("deepopsctl.node_programs.suites.gpu_check", f"kernels/{name}.ptx")
    if text is None:
        raise NotPossibleError(f"kernels/{name}.ptx is missing from this copy of gpucheck")
    return text


class Bench:
    """One GPU with the kernels of memory.ptx."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        multiprocessors = gpu.attribute("multiprocessors")
        # memory tests need as many threads as fit at once; arithmetic needs fewer
        self.blocks = multiprocessors * (gpu.attribute("threads_per_multiprocessor") // BLOCK)
        self.few_blocks = multiprocessors * 4
        self._memory: Module = gpu.module(kernels("memory"))

    def launch(self, kernel: str, *arguments: Any) -> None:
        """A kernel of memory.ptx."""
        self._memory.launch(kernel, self.blocks, *arguments)

    def fill(self, to: Pointer, size: int, seed: int, step: int = 0) -> None:
        """Write a pattern."""
        self.launch("fill", to, ctypes.c_ulonglong(size // 4), ctypes.c_uint(seed), ctypes.c_uint(step))

    def wrong_words(self, at: Pointer, size: int, seed: int, step: int = 0) -> tuple[int, int]:
        """How many words are not as the pattern has them, and the lowest index of one."""
        with self.gpu.buffer(16) as counter:
            self.gpu.write(counter, array.array("Q", (0, 2**64 - 1)).tobytes())
            self.launch("check", at, ctypes.c_ulonglong(size // 4), ctypes.c_uint(seed), ctypes.c_uint(step), counter)
            wrong, first = array.array("Q", self.gpu.read(counter, 16))
        return wrong, first

    def demand(self, what: str, at: Pointer, size: int, seed: int, step: int = 0) -> None:
        """WrongResultError where memory is not as the pattern has it."""
        wrong, first = self.wrong_words(at, size, seed, step)
        if wrong:
            raise WrongResultError(f"{what}: {wrong} of {size // 4} words are wrong, the first at byte {first * 4}")

    def best(self, work: Callable[[], None]) -> float:
        """Seconds of the quickest of some rounds, after one that doesn't count."""
        work()
        with self.gpu.stopwatch() as watch:
            times = []
            for _ in range(_ROUNDS):
                watch.start()
                work()
                times.append(watch.stop())
        return min(times)


def memory_bandwidth(bench: Bench) -> dict[str, float]:
    """GB/s of copy (read + write) and triad (two reads + write), both checked."""
    free, _ = bench.gpu.memory()
    # far beyond any cache, and no more than what is free
    size = min(2 * GIB, free // 4) // 65536 * 65536
    if size < _LEAST_BYTES:
        raise NotPossibleError(f"only {free // 2**20} MiB of its memory are free")
    quads = ctypes.c_ulonglong(size // 16)
    with bench.gpu.buffer(size) as a, bench.gpu.buffer(size) as b, bench.gpu.buffer(size) as c:
        bench.fill(b, size, *_ADDRESSED)
        copy = bench.best(lambda: bench.launch("copy", a, b, quads))
        bench.demand("copy", a, size, *_ADDRESSED)
        bench.fill(b, size, _ONE)
        bench.fill(c, size, _TWO)
        triad = bench.best(lambda: bench.launch("triad", a, b, c, ctypes.c_float(3.0), quads))
        bench.demand("triad", a, size, _SEVEN)
    return {"copy_gb_s": 2 * size / copy / 1e9, "triad_gb_s": 3 * size / triad / 1e9}


def memory_test(bench: Bench, share: float = 0.9) -> dict[str, int]:
    """Write and verify patterns over `share` of the free memory. One planted error first: the check must find it."""
    free, _ = bench.gpu.memory()
    size = int(free * share) // 65536 * 65536
    with bench.gpu.buffer(size) as memory:
        bench.fill(memory, size, *_ADDRESSED)
        planted = size // 8 * 4
        there = Pointer(memory.value + planted)
        good = bench.gpu.read(there, 4)
        bench.gpu.write(there, bytes(byte ^ 0x10 for byte in good))
        if bench.wrong_words(memory, size, *_ADDRESSED) != (1, planted // 4):
            raise WrongResultError("the memory test did not find the error that it had planted")
        for seed, step in PATTERNS:
            bench.fill(memory, size, seed, step)
            bench.demand("memory test", memory, size, seed, step)
    return {"tested_mib": size // 2**20, "patterns": len(PATTERNS)}


class Arithmetic(ABC):
    """Sums or products on all multiprocessors, sized so that a call takes a moment; the results are known."""

    unit = "TFLOP/s"
    name = ""

    def __init__(self, bench: Bench, kernels_of: str, kernel: str, arguments: list[Any], expected: bytes) -> None:
        self._bench, self._kernel, self._arguments, self._expected = bench, kernel, arguments, expected
        self._module = bench.gpu.module(kernels(kernels_of))
        self.threads = bench.few_blocks * BLOCK
        self._rounds = 64

    @abstractmethod
    def operations(self, rounds: int) -> float:
        """Floating-point operations of a call."""

    def best(self) -> float:
        """TFLOP/s of the quickest of some calls, checked."""
        with self._bench.gpu.buffer(len(self._expected)) as out:
            seconds = self._sized(out)
            self._demand(out)
        return self.operations(self._rounds) / seconds / 1e12

    def sustained(self, seconds: float) -> float:
        """TFLOP/s over so many seconds of calls, one after the other, checked at the end."""
        with self._bench.gpu.buffer(len(self._expected)) as out, self._bench.gpu.stopwatch() as watch:
            if self._rounds == 64:
                self._sized(out)
            spent, done = 0.0, 0.0
            ends = time.monotonic() + seconds
            while not spent or time.monotonic() < ends:
                watch.start()
                self._work(out)
                spent += watch.stop()
                done += self.operations(self._rounds)
            self._demand(out)
        return done / spent / 1e12

    def _work(self, out: Pointer) -> None:
        blocks, rounds = self._bench.few_blocks, ctypes.c_uint(self._rounds)
        self._module.launch(self._kernel, blocks, out, rounds, *self._arguments)

    def _sized(self, out: Pointer) -> float:
        """Choose rounds that take long enough to mean something; the seconds of the quickest call with so many."""
        while True:
            seconds = self._bench.best(lambda: self._work(out))
            if seconds * _ROUNDS >= _SECONDS or self._rounds >= 2**26:
                return seconds
            factor = max(2, int(_SECONDS / _ROUNDS / max(seconds, 1e-6) * 1.2))
            self._rounds = min(2**26, self._rounds * factor)

    def _demand(self, out: Pointer) -> None:
        has, expected = self._bench.gpu.read(out, len(self._expected)), self._expected
        if has == expected:
            return
        wrong = sum(has[at : at + 4] != expected[at : at + 4] for at in range(0, len(expected), 4))
        raise WrongResultError(f"{self.name}: {wrong} of {len(expected) // 4} results are wrong")


class Fp32(Arithmetic):
    """Fused multiply-adds."""

    name = "fp32"
    _OFFSET, _CHAINS, _STEPS = 1024.0, 8, 8

    def __init__(self, bench: Bench) -> None:
        threads = bench.few_blocks * BLOCK
        block = array.array("f", (self._CHAINS * (self._OFFSET - start) - 28 for start in range(1024)))
        expected = (block * (threads // 1024 + 1)).tobytes()[: threads * 4]
        arguments = [ctypes.c_float(-1.0), ctypes.c_float(self._OFFSET)]
        super().__init__(bench, "fma", "fma_rate", arguments, expected)

    def operations(self, rounds: int) -> float:
        """Two for each step of each chain."""
        return 2.0 * self.threads * self._CHAINS * (self._STEPS * rounds + 1)


class Bf16(Arithmetic):
    """mma.sync on bf16 with fp32 sums."""

    name = "bf16"
    _TILES, _FLOPS = 8, 2 * 16 * 8 * 16

    def __init__(self, bench: Bench) -> None:
        major, minor = bench.gpu.capability
        if major < 8:
            raise NotPossibleError(f"compute capability {major}.{minor}: bf16 matrices came with 8.0")
        warps = bench.few_blocks * BLOCK // 32
        super().__init__(bench, "mma", "mma_rate", [], bf16_tile(self._TILES).tobytes() * warps)

    def operations(self, rounds: int) -> float:
        """A warp makes a product of every tile, twice a round."""
        return float(self.threads // 32 * self._TILES * self._FLOPS * (2 * rounds + 1))


def fp32_rate(bench: Bench) -> dict[str, float]:
    """TFLOP/s of fused multiply-adds."""
    return {"fp32_tflop_s": Fp32(bench).best()}


def bf16_rate(bench: Bench) -> dict[str, float]:
    """TFLOP/s of mma.sync on bf16 with fp32 sums."""
    return {"bf16_tflop_s": Bf16(bench).best()}


def bf16_tile(tiles: int) -> array.array[float]:
    """What the 32 lanes of a warp must leave: element j of lane l is 16 (row + 1) (column + 1), of every tile."""
    values = array.array("f")
    for lane in range(32):
        for element in range(4):
            row, column = lane // 4 + 8 * (element // 2), lane % 4 * 2 + element % 2
            values.append(tiles * 16.0 * (row + 1) * (column + 1))
    return values

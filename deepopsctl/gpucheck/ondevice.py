"""Measurements on one GPU. Every one checks what the GPU made, and raises WrongResultError where it is not right."""

from __future__ import annotations

import array
import ctypes
import pkgutil
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
    """This GPU or this moment does not allow the measurement; the text says why."""


def kernels(name: str) -> bytes:
    """The PTX of one file in kernels/; also where the package is one zip file."""
    text = pkgutil.get_data("deepopsctl.gpucheck", "kernels/{}.ptx".format(name))
    if text is None:
        raise NotPossibleError("kernels/{}.ptx is missing from this copy of gpucheck".format(name))
    return text


class Bench:
    """One GPU with the kernels of memory.ptx."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        multiprocessors = gpu.attribute("multiprocessors")
        # memory wants all threads that fit at once, and none that wait; arithmetic is busy with fewer
        self.blocks = multiprocessors * (gpu.attribute("threads_per_multiprocessor") // BLOCK)
        self.few_blocks = multiprocessors * 4
        self._memory: Module = gpu.module(kernels("memory"))

    def run(self, kernel: str, *arguments: Any) -> None:
        """A kernel of memory.ptx."""
        self._memory.launch(kernel, self.blocks, *arguments)

    def fill(self, to: Pointer, size: int, seed: int, step: int = 0) -> None:
        """Write a pattern."""
        self.run("fill", to, ctypes.c_ulonglong(size // 4), ctypes.c_uint(seed), ctypes.c_uint(step))

    def wrong_words(self, at: Pointer, size: int, seed: int, step: int = 0) -> tuple[int, int]:
        """How many words are not as the pattern has them, and the lowest index of one."""
        with self.gpu.buffer(16) as found:
            self.gpu.write(found, array.array("Q", (0, 2**64 - 1)).tobytes())
            self.run("check", at, ctypes.c_ulonglong(size // 4), ctypes.c_uint(seed), ctypes.c_uint(step), found)
            wrong, first = array.array("Q", self.gpu.read(found, 16))
        return wrong, first

    def demand(self, what: str, at: Pointer, size: int, seed: int, step: int = 0) -> None:
        """WrongResultError where memory is not as the pattern has it."""
        wrong, first = self.wrong_words(at, size, seed, step)
        if wrong:
            raise WrongResultError(
                "{}: {} of {} words are wrong, the first at byte {}".format(what, wrong, size // 4, first * 4)
            )

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
        raise NotPossibleError("only {} MiB of its memory are free".format(free // 2**20))
    quads = ctypes.c_ulonglong(size // 16)
    with bench.gpu.buffer(size) as a, bench.gpu.buffer(size) as b, bench.gpu.buffer(size) as c:
        bench.fill(b, size, *_ADDRESSED)
        copy = bench.best(lambda: bench.run("copy", a, b, quads))
        bench.demand("copy", a, size, *_ADDRESSED)
        bench.fill(b, size, _ONE)
        bench.fill(c, size, _TWO)
        triad = bench.best(lambda: bench.run("triad", a, b, c, ctypes.c_float(3.0), quads))
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


def fp32_rate(bench: Bench) -> dict[str, float]:
    """TFLOP/s of fused multiply-adds."""
    offset = 1024.0
    chains, steps = 8, 8
    threads = bench.few_blocks * BLOCK

    def expected() -> bytes:
        block = array.array("f", (chains * (offset - start) - 28 for start in range(1024)))
        return (block * (threads // 1024 + 1)).tobytes()[: threads * 4]

    module = bench.gpu.module(kernels("fma"))
    with bench.gpu.buffer(threads * 4) as out:

        def work(rounds: int) -> None:
            arguments = (out, ctypes.c_uint(rounds), ctypes.c_float(-1.0), ctypes.c_float(offset))
            module.launch("fma_rate", bench.few_blocks, *arguments)

        rounds, seconds = _sized(bench, work)
        _demand_same("fp32", bench.gpu.read(out, threads * 4), expected())
    return {"fp32_tflop_s": 2 * threads * chains * (steps * rounds + 1) / seconds / 1e12}


def bf16_rate(bench: Bench) -> dict[str, float]:
    """TFLOP/s of mma.sync on bf16 with fp32 sums."""
    major, minor = bench.gpu.capability
    if major < 8:
        raise NotPossibleError("compute capability {}.{}: bf16 matrices came with 8.0".format(major, minor))
    tiles, flops = 8, 2 * 16 * 8 * 16
    threads = bench.few_blocks * BLOCK
    module = bench.gpu.module(kernels("mma"))
    with bench.gpu.buffer(threads * 16) as out:

        def work(rounds: int) -> None:
            module.launch("mma_rate", bench.few_blocks, out, ctypes.c_uint(rounds))

        rounds, seconds = _sized(bench, work)
        _demand_same("bf16", bench.gpu.read(out, threads * 16), bf16_tile(tiles).tobytes() * (threads // 32))
    return {"bf16_tflop_s": threads // 32 * tiles * flops * (2 * rounds + 1) / seconds / 1e12}


def bf16_tile(tiles: int) -> array.array[float]:
    """What the 32 lanes of a warp must leave: element j of lane l is 16 (row + 1) (column + 1), of every tile."""
    values = array.array("f")
    for lane in range(32):
        for element in range(4):
            row, column = lane // 4 + 8 * (element // 2), lane % 4 * 2 + element % 2
            values.append(tiles * 16.0 * (row + 1) * (column + 1))
    return values


def _sized(bench: Bench, work: Callable[[int], None]) -> tuple[int, float]:
    """Rounds that take long enough to mean something, and the seconds of the quickest call with so many."""
    rounds = 64
    while True:
        seconds = bench.best(lambda: work(rounds))  # noqa: B023 (called at once)
        if seconds * _ROUNDS >= _SECONDS or rounds >= 2**26:
            return rounds, seconds
        rounds = min(2**26, rounds * max(2, int(_SECONDS / _ROUNDS / max(seconds, 1e-6) * 1.2)))


def _demand_same(what: str, has: bytes, expected: bytes) -> None:
    if has == expected:
        return
    wrong = sum(has[at : at + 4] != expected[at : at + 4] for at in range(0, len(expected), 4))
    raise WrongResultError("{}: {} of {} results are wrong".format(what, wrong, len(expected) // 4))

"""Bandwidth between host and GPU and between GPUs, by message size; what arrives is checked."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Callable

from .cuda import Cuda, Gpu, let_peer_in
from .device_tests import PATTERNS, Bench, WrongResultError

KIB = 1024
SIZES = tuple(64 * KIB * 4**power for power in range(7))  # 64 KiB to 256 MiB
_BATCH_BYTES = 2**29
_MOST_COPIES = 64
_PATTERN = PATTERNS[-1]


def host_link(bench: Bench) -> dict[str, Any]:
    """GB/s to the device and back, from and to pinned memory."""
    size = SIZES[-1]
    gpu = bench.gpu
    with gpu.pinned(size) as source, gpu.pinned(size) as sink, gpu.buffer(size) as device:
        noise = os.urandom(2**20)
        for start in range(0, size, len(noise)):
            ctypes.memmove(ctypes.c_void_p((source.value or 0) + start), noise, len(noise))
        ctypes.memset(sink, 0, size)

        def put(length: int) -> None:
            gpu.cuda.call("cuMemcpyHtoDAsync_v2", device, source, ctypes.c_size_t(length), None)

        def get(length: int) -> None:
            gpu.cuda.call("cuMemcpyDtoHAsync_v2", sink, device, ctypes.c_size_t(length), None)

        to_device = by_size(bench, put, SIZES)
        from_device = by_size(bench, get, SIZES)
        if _compare(source, sink, size):
            raise WrongResultError("host to device and back: what came back is not what was sent")
    return {"h2d": to_device, "d2h": from_device}


def peer_links(cuda: Cuda) -> list[dict[str, Any]]:
    """GB/s of the largest message from every GPU of this process to every other one, one pair at a time."""
    benches = [Bench(Gpu(cuda, ordinal)) for ordinal in range(cuda.count())]
    return [
        {"from": first, "to": second, **_pair(one, other)}
        for first, one in enumerate(benches)
        for second, other in enumerate(benches)
        if first != second
    ]


def _pair(one: Bench, other: Bench) -> dict[str, Any]:
    size, cuda = SIZES[-1], one.gpu.cuda
    direct = let_peer_in(cuda, one.gpu, other.gpu)
    other.gpu.use()
    with other.gpu.buffer(size) as there:
        other.fill(there, size, 0)
        other.gpu.wait()
        one.gpu.use()
        with one.gpu.buffer(size) as here:
            one.fill(here, size, *_PATTERN)

            def send(length: int) -> None:
                ends = (there, other.gpu.context, here, one.gpu.context)
                cuda.call("cuMemcpyPeerAsync", *ends, ctypes.c_size_t(length), None)

            rate = by_size(one, send, (size,))[0]["gb_s"]
            one.gpu.wait()
        other.gpu.use()
        other.demand("GPU to GPU", there, size, *_PATTERN)
    return {"direct": direct, "gb_s": rate}


def by_size(bench: Bench, work: Callable[[int], None], sizes: tuple[int, ...]) -> list[dict[str, float]]:
    """GB/s of `work` for each size; small messages many at a time, one after the other."""
    rates = []
    for size in sizes:
        copies = max(1, min(_MOST_COPIES, _BATCH_BYTES // size))

        def batch(size: int = size, copies: int = copies) -> None:
            for _ in range(copies):
                work(size)

        rates.append({"bytes": size, "gb_s": copies * size / bench.best(batch) / 1e9})
    return rates


def _compare(one: ctypes.c_void_p, other: ctypes.c_void_p, size: int) -> int:
    memcmp = ctypes.CDLL(None).memcmp
    memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return int(memcmp(one, other, size))


def stay_near(pci: str) -> list[int] | None:
    """Pin this process to the CPUs near a GPU, so that its host memory is there too; None if not permitted."""
    try:
        text = (Path("/sys/bus/pci/devices") / pci / "local_cpulist").read_text(encoding="ascii").strip()
        near = cpu_list(text) & os.sched_getaffinity(0)
        os.sched_setaffinity(0, near)
    except (OSError, ValueError):
        # a VM without topology, or a job on other CPUs: the rate is what this process can get
        return None
    return sorted(near)


def cpu_list(text: str) -> set[int]:
    """`0-3,8` as numbers."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus

"""cuBLAS and NCCL by ctypes, from libraries that the caller names: a wheel's, a toolkit's. Nothing is searched."""

from __future__ import annotations

import ctypes
import time
from contextlib import ExitStack
from typing import Any

from .cuda import Cuda, Gpu, Pointer
from .device_tests import Bench, NotPossibleError

# cudaDataType, cublasComputeType_t, cublasGemmAlgo_t
_BF16, _FP32, _COMPUTE_FP32, _DEFAULT = 14, 0, 68, -1
_SIDE = 8192
_TWO_BF16, _HALF_BF16 = 0x40004000, 0x3F003F00

# ncclDataType_t, ncclRedOp_t
_NCCL_FP32, _NCCL_SUM = 7, 0
_NCCL_SIZES = tuple(4096 * 8**power for power in range(7))  # 4 KiB to 1 GiB
_WARMUP, _REPEATS = 3, 10


class LibraryError(Exception):
    """cuBLAS or NCCL refused a call."""


def load(path: str) -> ctypes.CDLL:
    """A library by its path; NotPossibleError where it can't be had."""
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NotPossibleError(f"{path} can't be loaded: {error}") from None


def matrix_rate(bench: Bench, path: str) -> dict[str, float]:
    """TFLOP/s of cuBLAS on square bf16 matrices with fp32 sums, checked: this is what the maker's figure is about."""
    if bench.gpu.capability < (8, 0):
        raise NotPossibleError("bf16 matrices came with compute capability 8.0")
    library = load(path)
    size = _SIDE * _SIDE
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    with bench.gpu.buffer(2 * size) as a, bench.gpu.buffer(2 * size) as b, bench.gpu.buffer(4 * size) as c:
        bench.fill(a, 2 * size, _TWO_BF16)
        bench.fill(b, 2 * size, _HALF_BF16)
        handle = ctypes.c_void_p()
        _call(library, "cublasCreate_v2", ctypes.byref(handle))
        try:
            sides = (_SIDE, _SIDE, _SIDE)

            def multiply() -> None:
                left, right = (a, _BF16, _SIDE), (b, _BF16, _SIDE)
                _call(
                    library, "cublasGemmEx", handle, 1, 0, *sides, ctypes.byref(one), *left, *right,
                    ctypes.byref(zero), c, _FP32, _SIDE, _COMPUTE_FP32, _DEFAULT,
                )  # fmt: skip

            seconds = bench.best(multiply)
            bench.demand("cuBLAS", c, 4 * size, _bits(float(_SIDE)))
        finally:
            _call(library, "cublasDestroy_v2", handle)
    return {"bf16_gemm_tflop_s": 2 * _SIDE**3 / seconds / 1e12}


class UniqueId(ctypes.Structure):
    """ncclUniqueId: how the ranks of one communicator find each other."""

    _fields_ = [("internal", ctypes.c_char * 128)]


def all_reduce(cuda: Cuda, path: str) -> dict[str, Any]:
    """The same for all GPUs of this process alone."""
    if cuda.count() < 2:
        raise NotPossibleError("one GPU: all-reduce needs at least two")
    library = load(path)
    return all_reduce_among(cuda, library, unique_id(library), cuda.count(), 0)


def unique_id(library: ctypes.CDLL) -> UniqueId:
    """A new id; the process that made it must live until all ranks have met."""
    made = UniqueId()
    _call(library, "ncclGetUniqueId", ctypes.byref(made))
    return made


def all_reduce_among(cuda: Cuda, library: ctypes.CDLL, unique: UniqueId, world: int, first_rank: int) -> dict[str, Any]:
    """GB/s (bus bandwidth, as nccl-tests reckon it) of sums over `world` GPUs, by message size.

    This process's GPUs are the ranks from `first_rank` on; all ranks meet by the same unique id.
    """
    benches = [Bench(Gpu(cuda, ordinal)) for ordinal in range(cuda.count())]
    with ExitStack() as stack:
        ring = _Ring(library, benches, stack)
        ring.join(unique, world, first_rank)
        measurements = [{"bytes": size, "gb_s": ring.bandwidth(size)} for size in _NCCL_SIZES]
        ring.demand_sum()
    return {"all_reduce": measurements, "ranks": world}


class _Ring:
    """The ranks of this process, one for each of its GPUs."""

    def __init__(self, library: ctypes.CDLL, benches: list[Bench], stack: ExitStack) -> None:
        self._library, self._benches = library, benches
        self._comms = [ctypes.c_void_p() for _ in benches]
        self._streams = [ctypes.c_void_p() for _ in benches]
        self._sources: list[Pointer] = []
        self._sums: list[Pointer] = []
        self._world = 0
        for bench, stream in zip(benches, self._streams):
            bench.gpu.use()
            bench.gpu.cuda.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
            self._sources.append(stack.enter_context(bench.gpu.buffer(_NCCL_SIZES[-1])))
            self._sums.append(stack.enter_context(bench.gpu.buffer(_NCCL_SIZES[-1])))
        stack.callback(self._leave)

    def join(self, unique: UniqueId, world: int, first_rank: int) -> None:
        """Become ranks `first_rank` and on of `world`; every rank's data is 1.0."""
        self._world = world
        _call(self._library, "ncclGroupStart")
        for number, (bench, comm) in enumerate(zip(self._benches, self._comms)):
            bench.gpu.use()
            _call(self._library, "ncclCommInitRank", ctypes.byref(comm), world, unique, first_rank + number)
        _call(self._library, "ncclGroupEnd")
        for bench, source in zip(self._benches, self._sources):
            bench.gpu.use()
            bench.fill(source, _NCCL_SIZES[-1], 0x3F800000)
            bench.gpu.wait()

    def bandwidth(self, size: int) -> float:
        """GB/s for messages of `size` bytes."""
        for _ in range(_WARMUP):
            self._reduce(size)
        self._wait()
        started = time.perf_counter()
        for _ in range(_REPEATS):
            self._reduce(size)
        self._wait()
        seconds = (time.perf_counter() - started) / _REPEATS
        return size / seconds / 1e9 * 2 * (self._world - 1) / self._world

    def demand_sum(self) -> None:
        """Every word on every rank is the number of ranks."""
        expected = _bits(float(self._world))
        for number, (bench, place) in enumerate(zip(self._benches, self._sums)):
            bench.gpu.use()
            bench.demand(f"all-reduce, rank {number}", place, _NCCL_SIZES[-1], expected)

    def _reduce(self, size: int) -> None:
        _call(self._library, "ncclGroupStart")
        for source, place, comm, stream in zip(self._sources, self._sums, self._comms, self._streams):
            count = ctypes.c_size_t(size // 4)
            _call(self._library, "ncclAllReduce", source, place, count, _NCCL_FP32, _NCCL_SUM, comm, stream)
        _call(self._library, "ncclGroupEnd")

    def _wait(self) -> None:
        for bench, stream in zip(self._benches, self._streams):
            bench.gpu.use()
            bench.gpu.cuda.call("cuStreamSynchronize", stream)

    def _leave(self) -> None:
        for comm in self._comms:
            if comm.value:
                self._library.ncclCommDestroy(comm)


def _bits(value: float) -> int:
    """A float as the word that memory holds."""
    return int(ctypes.c_uint.from_buffer_copy(ctypes.c_float(value)).value)


def _call(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise NotPossibleError(f"{library._name} has no {name}: is it the right library?") from None
    function.restype = ctypes.c_int
    code = function(*arguments)
    if code:
        raise LibraryError(f"{name}: error {code}")

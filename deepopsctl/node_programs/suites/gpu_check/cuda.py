"""CUDA's driver interface by ctypes: memory, kernels from PTX text (the driver compiles them), events."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIBRARY = "libcuda.so.1"
_ATTRIBUTES = {"multiprocessors": 16, "threads_per_multiprocessor": 39, "major": 75, "minor": 76}
_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE = 5, 6
_LOG_BYTES = 8192
_PEER_ACCESS_ALREADY_ENABLED = 704
BLOCK = 256

Pointer = ctypes.c_ulonglong


class CudaError(Exception):
    """The driver refused a call, or a kernel died."""

    def __init__(self, call: str, code: int, name: str, detail: str = "") -> None:
        super().__init__(f"{call}: {name or 'error'} ({code}){': ' + detail if detail else ''}")
        self.code = code


class NoCudaError(Exception):
    """There is no CUDA driver to talk to."""


class Cuda:
    """The library, initialised."""

    def __init__(self, path: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise NoCudaError(f"{path} can't be loaded: no NVIDIA driver here? ({error})") from None
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns CUresult; CudaError for anything but success."""
        code = self.answer(name, *arguments)
        if code:
            raise CudaError(name, code, self._name(code))

    def answer(self, name: str, *arguments: Any) -> int:
        """The CUresult of a call."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NoCudaError("this CUDA driver has no " + name) from None
        function.restype = ctypes.c_int
        return int(function(*arguments))

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")

    def count(self) -> int:
        """How many GPUs this process may use."""
        number = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def version(self) -> str:
        """The CUDA version that the driver serves."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"


class Gpu:
    """One GPU with its primary context. Calls go to the GPU that was made current last: `use()`."""

    def __init__(self, cuda: Cuda, ordinal: int = 0) -> None:
        self.cuda = cuda
        device = ctypes.c_int()
        cuda.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.device = device.value
        context = ctypes.c_void_p()
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.context = context
        self.use()

    def use(self) -> None:
        """Make it the one that the calls of this thread go to."""
        self.cuda.call("cuCtxSetCurrent", self.context)

    def close(self) -> None:
        """Give everything on it back."""
        self.cuda.call("cuDevicePrimaryCtxRelease_v2", self.device)

    def attribute(self, name: str) -> int:
        """A number of CUDA's device attributes."""
        value = ctypes.c_int()
        self.cuda.call("cuDeviceGetAttribute", ctypes.byref(value), _ATTRIBUTES[name], self.device)
        return value.value

    @property
    def capability(self) -> tuple[int, int]:
        """(9, 0) for Hopper."""
        return self.attribute("major"), self.attribute("minor")

    def uuid(self) -> str:
        """As NVML writes it."""
        raw = (ctypes.c_ubyte * 16)()
        self.cuda.call("cuDeviceGetUuid", ctypes.byref(raw), self.device)
        text = bytes(raw).hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @contextmanager
    def buffer(self, size: int) -> Iterator[Pointer]:
        """Device memory."""
        address = Pointer()
        self.cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        try:
            yield address
        finally:
            # an error here would hide the first one; the context ends with the process
            self.cuda.answer("cuMemFree_v2", address)

    @contextmanager
    def pinned(self, size: int) -> Iterator[ctypes.c_void_p]:
        """Host memory that the GPU reads and writes directly."""
        address = ctypes.c_void_p()
        self.cuda.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(0))
        try:
            yield address
        finally:
            self.cuda.answer("cuMemFreeHost", address)

    def write(self, to: Pointer, raw: bytes) -> None:
        """Bytes to the device."""
        self.cuda.call("cuMemcpyHtoD_v2", to, raw, ctypes.c_size_t(len(raw)))

    def read(self, at: Pointer, size: int) -> bytes:
        """Bytes from the device."""
        raw = ctypes.create_string_buffer(size)
        self.cuda.call("cuMemcpyDtoH_v2", raw, at, ctypes.c_size_t(size))
        return raw.raw

    def wait(self) -> None:
        """Wait until all work is done; errors of kernels are raised here."""
        self.cuda.call("cuCtxSynchronize")

    def module(self, ptx: bytes) -> Module:
        """Kernels from PTX, compiled by the driver for this GPU."""
        return Module(self.cuda, ptx)

    @contextmanager
    def stopwatch(self) -> Iterator[Stopwatch]:
        """Measures the time of GPU work between start() and stop()."""
        watch = Stopwatch(self.cuda)
        try:
            yield watch
        finally:
            watch.close()


class Module:
    """Kernels of one PTX text."""

    def __init__(self, cuda: Cuda, ptx: bytes) -> None:
        self._cuda = cuda
        self._module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        text = ctypes.create_string_buffer(ptx)
        code = cuda.answer("cuModuleLoadDataEx", ctypes.byref(self._module), text, ctypes.c_uint(2), options, values)
        if code:
            detail = " ".join(log.value.decode(errors="replace").split())
            raise CudaError("cuModuleLoadDataEx", code, cuda._name(code), detail)

    def launch(self, name: str, blocks: int, *arguments: Any) -> None:
        """Start a kernel with `blocks` blocks of 256 threads; arguments are ctypes values of the kernel's types."""
        function = ctypes.c_void_p()
        self._cuda.call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        shape = [ctypes.c_uint(number) for number in (blocks, 1, 1, BLOCK, 1, 1, 0)]
        self._cuda.call("cuLaunchKernel", function, *shape, None, pointers, None)


class Stopwatch:
    """Two events of the GPU's own clock."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self._events:
            cuda.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))

    def start(self) -> None:
        """From here."""
        self._cuda.call("cuEventRecord", self._events[0], None)

    def stop(self) -> float:
        """To here, in seconds; waits for the GPU."""
        self._cuda.call("cuEventRecord", self._events[1], None)
        self._cuda.call("cuEventSynchronize", self._events[1])
        elapsed = ctypes.c_float()
        self._cuda.call("cuEventElapsedTime", ctypes.byref(elapsed), *self._events)
        return elapsed.value / 1000

    def close(self) -> None:
        """Forget the events."""
        for event in self._events:
            self._cuda.answer("cuEventDestroy_v2", event)


def let_peer_in(cuda: Cuda, of: Gpu, peer: Gpu) -> bool:
    """Let `of` open the memory of `peer` directly; False where the two can't."""
    able = ctypes.c_int()
    cuda.call("cuDeviceCanAccessPeer", ctypes.byref(able), of.device, peer.device)
    if not able.value:
        return False
    of.use()
    code = cuda.answer("cuCtxEnablePeerAccess", peer.context, ctypes.c_uint(0))
    if code not in (0, _PEER_ACCESS_ALREADY_ENABLED):
        raise CudaError("cuCtxEnablePeerAccess", code, cuda._name(code))
    return True

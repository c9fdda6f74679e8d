"""NVML by ctypes: the driver's data about its GPUs. Nothing is changed on a GPU.

Not by nvidia-ml-py: docs/develop/decisions/standard-library-on-nodes.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Callable

from . import nvmlabi as abi

LIBRARY = "libnvidia-ml.so.1"
_WORDS = {
    abi.DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded: dmesg | grep -i nvidia",
    abi.MISMATCH: "driver and library versions differ: an update waits for a reboot",
    abi.GPU_IS_LOST: "the GPU has fallen off the bus: power cycle the node, then check riser, cable and card",
    abi.RESET_REQUIRED: "the GPU needs a reset: nvidia-smi --gpu-reset, or reboot",
}


class NvmlError(Exception):
    """NVML refused a call; `code` is its nvmlReturn_t."""

    def __init__(self, call: str, code: int, text: str = "") -> None:
        super().__init__(_WORDS.get(code) or f"{call}: {text or f'error {code}'}")
        self.code = code


class MissingError(Exception):
    """A library or a function of it is not on this node."""


class Nvml:
    """The library, initialised; close it by `close()`."""

    def __init__(self, path: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise MissingError(f"{path} can't be loaded: no NVIDIA driver here? ({error})") from None
        self.call("nvmlInit_v2")

    def close(self) -> None:
        """Let go of the driver."""
        self.call("nvmlShutdown")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns nvmlReturn_t; NvmlError for anything but success."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise MissingError("this driver's NVML has no " + name) from None
        function.restype = ctypes.c_int
        code = function(*arguments)
        if code != abi.SUCCESS:
            raise NvmlError(name, code, self._error_text(code))

    def _error_text(self, code: int) -> str:
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return ""
        function.restype = ctypes.c_char_p
        return bytes(function(code) or b"").decode(errors="replace")

    def text(self, name: str, *arguments: Any, size: int = abi.LONG_TEXT) -> str:
        """The string that a function writes into a buffer of `size`."""
        buffer = ctypes.create_string_buffer(size)
        self.call(name, *arguments, buffer, ctypes.c_uint(size))
        return buffer.value.decode(errors="replace")

    def number(self, name: str, *arguments: Any, value_type: Any = ctypes.c_uint) -> int:
        """The number that a function writes."""
        value = value_type()
        self.call(name, *arguments, ctypes.byref(value))
        return int(value.value)

    def handles(self) -> Iterator[tuple[int, abi.Handle | str]]:
        """Index and handle of every GPU; in place of the handle, what is wrong with one that can't be opened."""
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            handle = abi.Handle()
            try:
                self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            except NvmlError as error:
                yield index, str(error)
            else:
                yield index, handle


def known(ask: Callable[[], Any]) -> Any:
    """The answer of a query; None if this GPU or driver doesn't support it or refuses it."""
    try:
        return ask()
    except MissingError:
        return None
    except NvmlError as error:
        if error.code in (abi.GPU_IS_LOST, abi.RESET_REQUIRED):
            raise
        return None

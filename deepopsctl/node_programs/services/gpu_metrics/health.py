"""GPU metrics that alerts need and nvitop-exporter lacks: XIDs, memory errors, and throttling."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Callable

import pynvml
from prometheus_client import CollectorRegistry, Gauge

# as nvitop-exporter labels its own
LABELS = ("hostname", "index", "devicename", "uuid")
_WAIT_MS = 5000


def _ecc(handle: Any) -> float:
    error_type, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return float(pynvml.nvmlDeviceGetTotalEccErrors(handle, error_type, counter))


def _pending(handle: Any) -> float:
    return float(bool(pynvml.nvmlDeviceGetRemappedRows(handle)[2]))


def _reasons(handle: Any) -> float:
    try:
        return float(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError_FunctionNotFound:
        # its name before driver 535
        return float(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _recovery(handle: Any) -> float:
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        # a driver from before 565
        raise pynvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal)


_READ: dict[str, tuple[str, Callable[[Any], float]]] = {
    "deepops_gpu_ecc_uncorrected": ("Uncorrected ECC errors since the driver was loaded.", _ecc),
    "deepops_gpu_row_remap_pending": ("1 where remapped rows wait for a reset of the GPU.", _pending),
    "deepops_gpu_recovery_action": (
        "Recovery action that the driver recommends, by NVML's numbers; 0: nothing.",
        _recovery,
    ),
    "deepops_gpu_clock_event_reasons": ("NVML's bits for what holds the clocks down.", _reasons),
}


class Health:
    """The gauges, for each GPU by its index; what a GPU or its driver does not know has no sample."""

    def __init__(self, labels: Mapping[int, tuple[str, ...]], registry: CollectorRegistry) -> None:
        self._labels = labels
        self._gauges = {name: Gauge(name, text, LABELS, registry=registry) for name, (text, _) in _READ.items()}
        words = "The last XID since this program began; 0: none."
        self._xid = Gauge("deepops_gpu_xid_last", words, LABELS, registry=registry)
        for values in labels.values():
            self._xid.labels(*values).set(0)

    def update(self) -> None:
        """Read all GPUs once."""
        for index, values in self._labels.items():
            for name, (_, read) in _READ.items():
                try:
                    self._gauges[name].labels(*values).set(read(pynvml.nvmlDeviceGetHandleByIndex(index)))
                except pynvml.NVMLError:
                    self._gauges[name].remove(*values)

    def watch(self) -> None:
        """Take note of XIDs from now on, in a thread of its own."""
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        for index in self._labels:
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            except pynvml.NVMLError:
                # lost, or a model without such events
                continue
        threading.Thread(target=self._noting, args=(events,), daemon=True).start()

    def _noting(self, events: Any) -> None:
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
                index = pynvml.nvmlDeviceGetIndex(event.device)
            except pynvml.NVMLError_Timeout:
                continue
            except pynvml.NVMLError:
                # no event of this GPU comes any more; that it is lost is seen by those who read it
                return
            if index in self._labels:
                self._xid.labels(*self._labels[index]).set(float(event.eventData))

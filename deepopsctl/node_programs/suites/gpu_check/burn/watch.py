"""The GPUs of a node while they are loaded, as NVML sees them: heat, power, clocks, what holds them down, errors."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from ..inventory import ecc_facts, load_facts, remapped_rows
from ..nvml import MissingError, Nvml, NvmlError, known

Gpu = Any  # one entry of the inventory: plain JSON


class GpuWatch:
    """Samples of some GPUs. One that the driver loses meanwhile has its reason in `lost`."""

    def __init__(self, nvml: Nvml, gpus: list[Gpu]) -> None:
        self._nvml = nvml
        self._uuids = [gpu["uuid"] for gpu in gpus]
        self._samples: dict[str, list[dict[str, Any]]] = {uuid: [] for uuid in self._uuids}
        self._before = {uuid: self._errors(uuid) for uuid in self._uuids}
        self.lost: dict[str, str] = {}

    def sample(self) -> None:
        """Sample every GPU once."""
        for uuid in self._uuids:
            if uuid in self.lost:
                continue
            try:
                self._samples[uuid].append(load_facts(self._nvml, self._handle(uuid)))
            except (MissingError, NvmlError) as error:
                self.lost[uuid] = str(error)

    def result(self, uuid: str) -> dict[str, Any]:
        """What one GPU went through."""
        samples, after = self._samples[uuid], self._errors(uuid)
        summary = {
            "samples": len(samples),
            "temperature": highest(samples, "temperature"),
            "power": thousandth(highest(samples, "power")),
            "sm_lowest": lowest(samples, "sm"),
            "sm_highest": highest(samples, "sm"),
            "slowdowns": shares(samples),
            "errors": grown(self._before[uuid], after),
        }
        return {**summary, "lost": self.lost[uuid]} if uuid in self.lost else summary

    def _handle(self, uuid: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._nvml.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return handle

    def _errors(self, uuid: str) -> dict[str, int | None]:
        """Counters of memory errors, None if not reported."""
        try:
            handle = self._handle(uuid)
            ecc: dict[str, Any] = ecc_facts(self._nvml, handle) or {}
            rows: dict[str, Any] = known(lambda: remapped_rows(self._nvml, handle)) or {}
        except (MissingError, NvmlError):
            return {}
        return {
            "corrected": ecc.get("corrected"),
            "uncorrected": ecc.get("uncorrected"),
            "remapped": rows["corrected"] + rows["uncorrected"] if rows else None,
        }


def highest(samples: list[dict[str, Any]], key: str) -> int | None:
    """The highest reported value."""
    return max((sample[key] for sample in samples if sample.get(key) is not None), default=None)


def lowest(samples: list[dict[str, Any]], key: str) -> int | None:
    """The lowest reported value."""
    return min((sample[key] for sample in samples if sample.get(key) is not None), default=None)


def thousandth(value: int | None) -> float | None:
    """Milliwatts as watts."""
    return None if value is None else value / 1000


def shares(samples: list[dict[str, Any]]) -> dict[str, float]:
    """For every reason that held the clocks down, the share of the samples that had it."""
    counted = Counter(reason for sample in samples for reason in sample.get("slowdowns") or () if reason != "idle")
    return {reason: round(count / len(samples), 3) for reason, count in sorted(counted.items())}


def grown(before: dict[str, int | None], after: dict[str, int | None]) -> dict[str, int | None]:
    """Increase of every counter; None if not reported."""
    increases: dict[str, int | None] = {}
    for key in ("corrected", "uncorrected", "remapped"):
        first, last = before.get(key), after.get(key)
        increases[key] = None if first is None or last is None else last - first
    return increases

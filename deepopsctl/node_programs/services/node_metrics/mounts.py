"""Which mounts of cluster.yml are mounted on this node. File systems are not accessed: they may hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from ..._shared.mount_table import AUTOFS, Mounted, read
from ..._shared.prometheus_text import GAUGE
from .samples import Collector, Metric, Sample

METRICS: Mapping[str, Metric] = {
    "deepops_mount": Metric(GAUGE, "Whether storage of cluster.yml is mounted where it should be."),
}


def samples(wanted: Iterable[Mapping[str, Any]], mounts: Sequence[Mounted]) -> list[Sample]:
    """One for each; a mount at first use is there also before it is used."""
    real = {entry.path for entry in mounts if entry.type != AUTOFS}
    at_first_use = {entry.path for entry in mounts}
    return [
        Sample(
            "deepops_mount",
            float(each["path"] in (at_first_use if each["automount"] else real)),
            {"name": each["name"], "path": each["path"], "required": "true" if each["required"] else "false"},
        )
        for each in wanted
    ]


def _make(settings: Mapping[str, Any]) -> Callable[[], Iterable[Sample]]:
    def collect() -> Iterable[Sample]:
        return samples(settings["mounts"], read())

    return collect


COLLECTOR = Collector(METRICS, _make)

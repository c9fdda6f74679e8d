"""Which mounts of cluster.yml are mounted on this node. File systems are not accessed: they may hang."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Mapping, Set

from .._shared.mount_table import AUTOFS, TABLE, parse
from .._shared.prometheus_text import GAUGE
from .samples import Collector, Metric, Sample

METRICS: Mapping[str, Metric] = {
    "deepops_mount": Metric(GAUGE, "Whether storage of cluster.yml is mounted where it should be."),
}


def mounted(text: str, *, automounted: bool) -> Set[str]:
    """The paths at which something is; `automounted`: also those where it is mounted at first use."""
    return {entry.path for entry in parse(text) if automounted or entry.type != AUTOFS}


def samples(wanted: Iterable[Mapping[str, Any]], text: str) -> List[Sample]:
    """One for each."""
    real, at_first_use = mounted(text, automounted=False), mounted(text, automounted=True)
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
        with open(TABLE, encoding="utf-8", errors="surrogateescape") as stream:
            return samples(settings["mounts"], stream.read())

    return collect


COLLECTOR = Collector(METRICS, _make)

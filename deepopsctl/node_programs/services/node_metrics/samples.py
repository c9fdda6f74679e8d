"""Samples, and the text files of node exporter's textfile collector that they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable

from ..._shared.prometheus_text import Families


@dataclass(frozen=True)
class Metric:
    """Header of a metric: its type and help text."""

    type: str
    help: str


@dataclass(frozen=True)
class Sample:
    """One value. Labels of the node itself (`node`, `cluster`) are Prometheus' to add."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


Collect = Callable[[], Iterable[Sample]]


@dataclass(frozen=True)
class Collector:
    """A collector: the metrics that it may have, and what makes one from its settings of nodemetrics.json.

    What `make` returns is called every few seconds in a thread of its own. It raises where it can't know: then none
    of its metrics is written, and `deepops_nodemetrics_up` is 0.
    """

    metrics: Mapping[str, Metric]
    make: Callable[[Mapping[str, Any]], Collect]


def render(metrics: Mapping[str, Metric], samples: Iterable[Sample]) -> str:
    """The text. A name not in `metrics` is an error."""
    families = Families()
    for sample in samples:
        metric = metrics[sample.name]
        families.family(sample.name, metric.help, metric.type).set(sample.value, **sample.labels)
    return families.text()

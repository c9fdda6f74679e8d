"""Samples, and the text files of node exporter's textfile collector that they become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping

from .textformat import head, line

GAUGE, COUNTER = "gauge", "counter"


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
    """The text, with the samples of a metric together as the format asks. A name not in `metrics` is an error."""
    lines: Dict[str, List[str]] = {}
    for sample in samples:
        if sample.name not in metrics:
            raise KeyError("{} is none of this collector's metrics".format(sample.name))
        lines.setdefault(sample.name, []).append(line(sample.name, sample.labels, sample.value))
    text: List[str] = []
    for name in metrics:
        if name in lines:
            text += [*head(name, metrics[name].type, metrics[name].help), *lines[name]]
    return "".join(each + "\n" for each in text)

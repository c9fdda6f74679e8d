"""Samples, and the text files of node exporter's textfile collector that they become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True)
class Metric:
    """What stands in the head of a metric: its type and a sentence."""

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
class Kind:
    """A collector: the metrics that it may have, and what makes one from its settings of nodemetrics.json.

    What `make` returns is called every few seconds in a thread of its own. It raises where it can't know: then none
    of its metrics is shown, and `deepops_nodemetrics_up` says so.
    """

    metrics: Mapping[str, Metric]
    make: Callable[[Mapping[str, Any]], Collect]


def render(metrics: Mapping[str, Metric], samples: Iterable[Sample]) -> str:
    """The text, with the samples of a metric together as the format asks. A name not in `metrics` is an error."""
    lines: Dict[str, List[str]] = {}
    for sample in samples:
        if sample.name not in metrics:
            raise KeyError("{} is none of this collector's metrics".format(sample.name))
        lines.setdefault(sample.name, []).append(_line(sample))
    text = []
    for name in metrics:
        if name in lines:
            text += ["# HELP {} {}".format(name, _escape(metrics[name].help).replace('\\"', '"'))]
            text += ["# TYPE {} {}".format(name, metrics[name].type), *lines[name]]
    return "".join(line + "\n" for line in text)


def _line(sample: Sample) -> str:
    labels = ",".join('{}="{}"'.format(key, _escape(value)) for key, value in sample.labels.items())
    return "{}{} {}".format(sample.name, "{" + labels + "}" if labels else "", _number(sample.value))


def _number(value: float) -> str:
    # an integer in full: bytes and seconds since 1970 lose digits in %g
    return str(int(value)) if value == int(value) else repr(float(value))


def _escape(text: str) -> str:
    # node exporter drops a whole file for one byte that is no UTF-8
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

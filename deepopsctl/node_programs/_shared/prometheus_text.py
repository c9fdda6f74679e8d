"""Metrics in Prometheus' text format: one HELP and TYPE for each name, samples in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Tuple

# node exporter reads all files *.prom there
TEXTFILE_DIRECTORY = "/var/lib/prometheus/node-exporter"
# longest text in a label: a path fits
LABEL_LIMIT = 4096
GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"
_IN_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_IN_LABELS = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Tuple[Tuple[str, str], ...]


@dataclass
class Family:
    """One metric: its name, help text, and its samples by suffix (of a summary) and labels."""

    name: str
    help: str
    metric_type: str = GAUGE
    label_limit: int = LABEL_LIMIT
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def add(self, value: float, **labels: str) -> None:
        """Count something in; the same labels once more are added up."""
        key = ("", self._cleaned(labels))
        self.samples[key] = self.samples.get(key, 0.0) + value

    def set(self, value: float, **labels: str) -> None:
        """Set a value; for the same labels the last one counts."""
        self.samples["", self._cleaned(labels)] = value

    def sum_up(self, values: list[float], quantiles: Mapping[float, float], **labels: str) -> None:
        """Set a summary: the number of values, their sum, and the quantiles."""
        for quantile, value in quantiles.items():
            self.set(value, **labels, quantile=f"{quantile:g}")
        self.samples["_sum", self._cleaned(labels)] = sum(values)
        self.samples["_count", self._cleaned(labels)] = len(values)

    def text(self) -> str:
        """Its lines; '' without samples."""
        if not self.samples:
            return ""
        head = f"# HELP {self.name} {self.help.translate(_IN_HELP)}\n# TYPE {self.name} {self.metric_type}\n"
        lines = (_line(self.name + suffix, labels, value) for (suffix, labels), value in sorted(self.samples.items()))
        return head + "".join(lines)

    def _cleaned(self, labels: Mapping[str, str]) -> Labels:
        return tuple((name, _clean(text, self.label_limit)) for name, text in labels.items())


class Families:
    """All metrics of one round, by name; a text in a label is cut at `label_limit`."""

    def __init__(self, label_limit: int = LABEL_LIMIT) -> None:
        self._label_limit = label_limit
        self._families: dict[str, Family] = {}

    def family(self, name: str, text: str, metric_type: str = GAUGE) -> Family:
        """The metric of that name, created at first use."""
        return self._families.setdefault(name, Family(name, text, metric_type, self._label_limit))

    def add_value(self, name: str, text: str, value: float) -> None:
        """A metric without labels."""
        self.family(name, text).set(value)

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    @property
    def samples(self) -> int:
        """How many time series that is."""
        return sum(len(family.samples) for family in self._families.values())

    def text(self) -> str:
        """In Prometheus' text format."""
        return "".join(self._families[name].text() for name in sorted(self._families))


def _clean(text: str, limit: int) -> str:
    """A label's value: no control characters, which a terminal obeys, and no half letters, which end the whole file."""
    # nearly all are, and there are a hundred thousand on a large cluster
    if len(text) <= limit and text.isprintable():
        return text
    whole = text.encode("utf-8", "replace").decode("utf-8")
    plain = "".join(letter if letter.isprintable() else " " for letter in whole)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text.translate(_IN_LABELS)}"' for key, text in labels)
    return f"{name}{('{' + inside + '}' if inside else '')} {_number(value)}\n"


def _number(value: float) -> str:
    """Whole ones in full: bytes and seconds since 1970 would lose digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e17 else repr(float(value))

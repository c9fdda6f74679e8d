"""Samples, and the text that Prometheus reads them from: one HELP and TYPE for each name, samples in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Mapping, Tuple

from .textformat import head, line

# longest user-supplied text in a label
LABEL_LIMIT = 200

Labels = Tuple[Tuple[str, str], ...]


@dataclass
class Family:
    """One metric: its name, help text, and its samples by suffix (of a summary) and labels."""

    name: str
    help: str
    metric_type: str = "gauge"
    samples: Dict[Tuple[str, Labels], float] = field(default_factory=dict)

    def add(self, value: float, **labels: str) -> None:
        """Count something in; the same labels once more are added up."""
        key = ("", _cleaned(labels))
        self.samples[key] = self.samples.get(key, 0.0) + value

    def set(self, value: float, **labels: str) -> None:
        """Set a value; for the same labels the last one counts."""
        self.samples["", _cleaned(labels)] = value

    def sum_up(self, values: List[float], quantiles: Mapping[float, float], **labels: str) -> None:
        """Set a summary: the number of values, their sum, and the quantiles."""
        for quantile, value in quantiles.items():
            self.set(value, **labels, quantile=f"{quantile:g}")
        self.samples["_sum", _cleaned(labels)] = sum(values)
        self.samples["_count", _cleaned(labels)] = len(values)


class Families:
    """All metrics of one round, by name."""

    def __init__(self) -> None:
        self._found: Dict[str, Family] = {}

    def family(self, name: str, text: str, metric_type: str = "gauge") -> Family:
        """The metric of that name, created at first use."""
        return self._found.setdefault(name, Family(name, text, metric_type))

    def add_value(self, name: str, text: str, value: float) -> None:
        """A metric without labels."""
        self.family(name, text).set(value)

    def __iter__(self) -> Iterator[Family]:
        return iter(self._found.values())

    @property
    def samples(self) -> int:
        """How many time series that is."""
        return sum(len(family.samples) for family in self._found.values())

    def text(self) -> str:
        """In Prometheus' text format."""
        return "".join(_lines(self._found[name]) for name in sorted(self._found))


def _cleaned(labels: Mapping[str, str]) -> Labels:
    return tuple((name, cleaned(text)) for name, text in labels.items())


def cleaned(text: str) -> str:
    """A label's value: no control characters, no half letters, no more than `LABEL_LIMIT`."""
    # nearly all are, and there are a hundred thousand on a large cluster
    if len(text) <= LABEL_LIMIT and text.isprintable():
        return text
    whole = text.encode("utf-8", "replace").decode("utf-8")
    plain = "".join(letter if letter.isprintable() else " " for letter in whole)
    return plain if len(plain) <= LABEL_LIMIT else plain[: LABEL_LIMIT - 3] + "..."


def _lines(family: Family) -> str:
    if not family.samples:
        return ""
    samples = sorted(family.samples.items())
    lines = [line(family.name + suffix, dict(labels), value) for (suffix, labels), value in samples]
    return "\n".join([*head(family.name, family.metric_type, family.help), *lines]) + "\n"

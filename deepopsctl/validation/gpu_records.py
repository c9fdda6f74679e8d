"""One line of the GPU history: last good measurements of a card, or of a group of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deepopsctl.node_programs.gpu_check.measuring import SCHEMA
from deepopsctl.node_programs.gpu_check.rates import METRICS

# a card is good with at least this share of its best rate
WELL = 0.97

Result = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Rate:
    """One rate of one card: its last good value, and its best value ever."""

    value: float
    best: float
    when: str

    def after(self, value: float, when: str) -> Rate:
        """The same with a newer measurement."""
        if when <= self.when or value < WELL * self.best:
            return self
        return Rate(value, max(value, self.best), when)

    def line(self) -> dict[str, object]:
        """As the file has it."""
        return {"value": self.value, "best": self.best, "when": self.when}


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: where it was last seen, and its rates by the name of the check."""

    uuid: str
    name: str
    serial: str
    node: str
    index: int
    rates: Mapping[str, Rate]

    def results(self) -> Iterator[Result]:
        """The card as results of gpucheck, one for each day that counts."""
        for when in sorted({rate.when for rate in self.rates.values()}):
            measured: dict[str, dict[str, object]] = {}
            for metric in METRICS:
                rate = self.rates.get(metric.name)
                if rate and rate.when == when:
                    measured.setdefault(metric.test, {"status": "measured"}).update(metric.written(rate.value))
            gpu = {"index": self.index, "name": self.name, "uuid": self.uuid, "serial": self.serial}
            yield {
                "schema": SCHEMA, "node": self.node, "when": when, "versions": {},
                "gpus": [{**gpu, "measured": measured}], "group": {},
            }  # fmt: skip

    def line(self) -> dict[str, object]:
        """As the file has it."""
        return {
            "uuid": self.uuid, "name": self.name, "serial": self.serial, "node": self.node, "index": self.index,
            "rates": {name: rate.line() for name, rate in self.rates.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Nodes:
    """A group of nodes, with the rate of the all-reduce between them."""

    nodes: str
    rate: Rate

    def results(self) -> Iterator[Result]:
        """As a result of gpucheck's."""
        all_reduce = {"status": "measured", "nodes": self.nodes, "all_reduce": [{"bytes": 0, "gb_s": self.rate.value}]}
        yield {
            "schema": SCHEMA, "node": self.nodes, "when": self.rate.when, "versions": {}, "gpus": [],
            "group": {"all_reduce_nodes": all_reduce},
        }  # fmt: skip

    def line(self) -> dict[str, object]:
        """As the file has it."""
        return {"nodes": self.nodes, "all_reduce": self.rate.line()}


def record(entry: Mapping[str, Any]) -> tuple[str, Card | Nodes]:
    """A line of the file, and what it is known by; KeyError, TypeError or ValueError where it is none."""
    if "nodes" in entry:
        nodes = str(entry["nodes"])
        return nodes, Nodes(nodes, _rate(entry["all_reduce"]))
    rates = {str(name): _rate(rate) for name, rate in dict(entry["rates"]).items()}
    uuid, name, serial, node = (str(entry[key]) for key in ("uuid", "name", "serial", "node"))
    return uuid, Card(uuid, name, serial, node, int(entry["index"]), rates)


def _rate(entry: Mapping[str, Any]) -> Rate:
    return Rate(float(entry["value"]), float(entry["best"]), str(entry["when"]))

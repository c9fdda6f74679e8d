"""The GPU suite: evaluates the results of all nodes, stores the last good ones of every GPU in the cluster.

A card is identified by its UUID, in whatever node. For each rate two numbers are stored: the best one ever
measured, and the last one within a few percent of it, with its date. New measurements are compared with the last
one: "down 12% since 2026-11-03" then names the last day on which the card was good, and a card that loses a little in
every run is not compared with its own decline. Groups of nodes in an all-reduce are identified by their names.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepopsctl.checks.check import Check, Status, parse_check
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster
from deepopsctl.node_programs.suites.gpu_check.between import NAME as BETWEEN_NODES, bandwidth
from deepopsctl.node_programs.suites.gpu_check.document import UnreadableError, document, read_results
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from deepopsctl.node_programs.suites.gpu_check.measuring import SCHEMA as RESULT_SCHEMA
from deepopsctl.node_programs.suites.gpu_check.rates import METRICS, value_of
from deepopsctl.node_programs.suites.gpu_check.results import target_of
from deepopsctl.run.outcome import RunSummary
from deepopsctl.run.workspace import RunDir, Workspace
from deepopsctl.text.answers import mapping, mappings, number, text
from deepopsctl.validation.result import Validation

SUITE = "gpu"
Result = Mapping[str, object]

SCHEMA = 1
# in a run directory: the output of `gpucheck --json`, so that `gpucheck --evaluate` and `--earlier` can read it
RUN_FILE = "gpu.json"
_HEAD = {"schema": SCHEMA, "kind": "gpu-history"}
_DAMAGED = ".damaged"

# a card is good with at least this share of its best rate
WELL = 0.97


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
                "schema": RESULT_SCHEMA, "node": self.node, "when": when, "versions": {},
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
            "schema": RESULT_SCHEMA, "node": self.nodes, "when": self.rate.when, "versions": {}, "gpus": [],
            "group": {"all_reduce_nodes": all_reduce},
        }  # fmt: skip

    def line(self) -> dict[str, object]:
        """As the file has it."""
        return {"nodes": self.nodes, "all_reduce": self.rate.line()}


# by the card's UUID, or the nodes' names
Cards = Mapping[str, Card | Nodes]


def with_gpus(validation: Validation, cluster: Cluster, directory: ClusterDir) -> tuple[Validation, tuple[str, ...]]:
    """The validation with its GPU checks, and warnings about the stored history."""
    results = results_of(validation.outcome.summary)
    if not results:
        return validation, ()
    earlier = earlier_results(directory)
    checks = evaluate_gpus(results, earlier.results, cluster)
    warnings = save_results(directory, validation.outcome.run_dir, results, checks)
    facts = replace(validation.facts, checks=(*validation.facts.checks, *checks), gpus=results)
    return replace(validation, facts=facts), (*earlier.warnings, *warnings)


def results_of(summary: RunSummary) -> tuple[Result, ...]:
    """gpucheck's results, as the suite's module returned them."""
    return tuple(entry for task in summary.results for entry in task.entries("gpus"))


def evaluate_gpus(results: tuple[Result, ...], earlier: tuple[Result, ...], cluster: Cluster) -> tuple[Check, ...]:
    """Every GPU check for these nodes; the expected number of GPUs is from cluster.yml."""
    return tuple(parse_check(entry) for entry in evaluate(results, earlier, cards_by_node(cluster)))


def cards_by_node(cluster: Cluster) -> dict[str, int]:
    """GPUs by node; omits MIG types like `1g.10gb`, whose count is slices, not cards."""
    return {node.name: node.gpus.count for node in cluster.nodes if node.gpus and "g." not in node.gpus.type}


@dataclass(frozen=True, slots=True)
class Earlier:
    """Results to compare with, and warnings about files that could not be read."""

    results: tuple[Result, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The stored history: a `damaged` file is renamed before it is replaced, a `foreign` one is not changed."""

    cards: Cards
    warnings: tuple[str, ...] = ()
    damaged: bool = False
    foreign: bool = False


def earlier_results(directory: ClusterDir) -> Earlier:
    """Earlier good measurements of all cards that this cluster has ever had; call it before `keep_results`."""
    stored = _load(directory)
    return Earlier(tuple(result for card in stored.cards.values() for result in card.results()), stored.warnings)


def save_results(
    directory: ClusterDir, run_dir: RunDir, results: Sequence[Result], checks: Iterable[Check]
) -> tuple[str, ...]:
    """Save the results with the run, and good ones in the history; returns warnings."""
    evaluated = list(checks)
    # before this run's own results are stored
    before = _load(directory)
    run_dir.write(run_dir.path / RUN_FILE, document(list(results), [check.to_dict() for check in evaluated]))
    after = update_history(before.cards, results, evaluated)
    unchanged = after == before.cards and directory.gpu_history.exists() and not before.damaged
    if before.foreign or unchanged:
        return ()
    try:
        return _replace(directory.gpu_history, after, damaged=before.damaged)
    except OSError as error:
        return (
            f"{directory.gpu_history.name} can't be written ({error.strerror}): later runs can't compare with this one",
        )


def update_history(cards: Cards, results: Iterable[Result], checks: Iterable[Check]) -> dict[str, Card | Nodes]:
    """The history with new results, except those with a warning or failure."""
    bad: dict[str, set[str]] = {}
    for check in checks:
        if check.status in (Status.WARN, Status.FAIL):
            bad.setdefault(check.target, set()).add(check.name)
    updated = dict(cards)
    for result in results:
        node, when = str(result.get("node")), str(result.get("when"))
        for gpu in map(dict, mappings(result.get("gpus"))):
            uuid = text(gpu.get("uuid"))
            known = updated.get(uuid)
            old = known.rates if isinstance(known, Card) else {}
            rates = _renewed(old, gpu, when, bad.get(target_of(node, gpu), ()))
            if uuid and rates:
                name, serial = (text(gpu.get(key)) for key in ("name", "serial"))
                updated[uuid] = Card(uuid, name, serial, node, number(gpu["index"]), rates)
        together = {**mapping(mapping(result.get("group")).get("all_reduce_nodes"))}
        if together and BETWEEN_NODES not in bad.get(nodes := str(together["nodes"]), ()):
            updated.update(_between(updated.get(nodes), nodes, together, when))
    return updated


def render(cards: Cards) -> str:
    """The history as text: one line per card, so that git shows which cards changed, and lines can be deleted."""
    ordered = [card.line() for _, card in sorted(cards.items())]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (_HEAD, *ordered))


def record(entry: Mapping[str, Any]) -> tuple[str, Card | Nodes]:
    """A line of the file, and what it is known by; KeyError, TypeError or ValueError where it is none."""
    if "nodes" in entry:
        nodes = str(entry["nodes"])
        return nodes, Nodes(nodes, _rate(entry["all_reduce"]))
    rates = {str(name): _rate(rate) for name, rate in dict(entry["rates"]).items()}
    uuid, name, serial, node = (str(entry[key]) for key in ("uuid", "name", "serial", "node"))
    return uuid, Card(uuid, name, serial, node, int(entry["index"]), rates)


class _ForeignError(Exception):
    """A newer deepopsctl wrote the history."""


def _replace(path: Path, cards: Cards, *, damaged: bool) -> tuple[str, ...]:
    warnings: tuple[str, ...] = ()
    if damaged:
        aside = path.with_name(path.name + _DAMAGED)
        path.replace(aside)
        warnings = (f"{path.name} could not be read: it was renamed to {aside.name} and replaced",)
    if cards:
        write_atomic(path, render(cards))
    return warnings


def _between(known: Card | Nodes | None, nodes: str, together: dict[str, Any], when: str) -> dict[str, Nodes]:
    """The updated all-reduce rate of a group of nodes; empty without a measurement."""
    value = float(f"{bandwidth(together) or 0:.5g}")
    if not value:
        return {}
    rate = known.rate.after(value, when) if isinstance(known, Nodes) else Rate(value, value, when)
    return {nodes: Nodes(nodes, rate)}


def _renewed(old: Mapping[str, Rate], gpu: Mapping[str, object], when: str, bad: Container[str]) -> dict[str, Rate]:
    """A card's updated rates."""
    rates = dict(old)
    for metric in METRICS:
        value = float(f"{value_of(gpu, metric) or 0:.5g}")
        if value and metric.name not in bad:
            known = old.get(metric.name)
            rates[metric.name] = known.after(value, when) if known else Rate(value, value, when)
    return rates


def _load(directory: ClusterDir) -> StoredHistory:
    """The history; missing or unreadable parts are rebuilt from the stored runs."""
    path = directory.gpu_history
    try:
        cards, bad = _read(path)
    except FileNotFoundError:
        return StoredHistory(*_from_runs(directory))
    except _ForeignError as error:
        return StoredHistory({}, (f"{path.name}: {error}",), foreign=True)
    except (OSError, ValueError) as error:
        cards, bad = {}, [str(error)]
    if not bad:
        return StoredHistory(cards)
    others, warnings = _from_runs(directory)
    message = f"{path.name} can't be read ({'; '.join(bad[:3])}): rebuilt from the stored runs"
    return StoredHistory({**others, **cards}, (message, *warnings), damaged=True)


def _from_runs(directory: ClusterDir) -> tuple[dict[str, Card | Nodes], tuple[str, ...]]:
    cards: dict[str, Card | Nodes] = {}
    warnings = []
    for run_dir in reversed(Workspace(directory.runs).newest_first()):
        path = run_dir.path / RUN_FILE
        if not path.is_file():
            continue
        try:
            cards = update_history(cards, read_results(path), _checks(path))
        except (UnreadableError, ValueError, TypeError, KeyError, AttributeError) as error:
            warnings.append(f"runs/{run_dir.id}/{RUN_FILE} is left out: {error}")
    return cards, tuple(warnings)


def _checks(path: Path) -> list[Check]:
    from deepopsctl.checks.check import parse_check

    listed = json.loads(path.read_text(encoding="utf-8")).get("checks")
    return [parse_check(entry) for entry in listed or ()]


def _read(path: Path) -> tuple[dict[str, Card | Nodes], list[str]]:
    """The cards in a history, and the problems of its lines; ValueError if it is not history."""
    first, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    head = json.loads(first)
    if not isinstance(head, dict) or not isinstance(head.get("schema"), int) or head.get("kind") != _HEAD["kind"]:
        raise ValueError("it is not history GPUs")
    if head["schema"] > SCHEMA:
        raise _ForeignError(f"schema {head['schema']}: a newer deepopsctl wrote it; nothing is compared or kept")
    cards: dict[str, Card | Nodes] = {}
    bad: list[str] = []
    for count, line in enumerate(lines, 2):
        try:
            name, card = record(json.loads(line))
            cards[name] = card
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            bad.append(f"line {count}: {error}")
    return cards, bad


def _rate(entry: Mapping[str, Any]) -> Rate:
    return Rate(float(entry["value"]), float(entry["best"]), str(entry["when"]))

"""Curves, strips and heat maps of a GPU model: the median, and the outliers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

from deepopsctl.checks.catalogue.suites import entry
from deepopsctl.report.gpu.plots import Curve, Dot, Point, bandwidth_plot, heat_map, strip
from deepopsctl.report.gpu.summary import COLUMNS, Model
from deepopsctl.report.grouping import fold_names
from deepopsctl.text.node_sets import shorten

Result = Any  # one node's result of gpucheck: plain JSON
Rates = Mapping[tuple[int, int], float]

# so many outliers are drawn; the table has all of them
MAX_OUTLIERS = 4
# so many nodes have a heat map each; of more, the outliers and the median of the others
FEW_NODES = 3
# gpucheck's bound for pairs: a tenth below the others of the node
_PAIR_SHARE = 0.9
_WAYS = (("h2d", "to GPU", "gpu-to-device"), ("d2h", "from GPU", "gpu-from-device"))
# letters next to a line's end
_NAME = 14
_HEALTH = ("gpu-temperature", "gpu-power")


def strips(model: Model, bounds: Mapping[str, float]) -> tuple[str, ...]:
    """The distribution of each rate over the GPUs; none for fewer than three."""
    if len(model.gpus) < 3:
        return ()
    drawn = []
    for column in COLUMNS:
        if column.check in _HEALTH:
            continue
        dots = []
        for gpu in model.gpus:
            status = str(gpu.outcomes[column.check].status) if gpu.is_outlier(column.check) else ""
            if column.check in gpu.values:
                dots.append(Dot(gpu.target, gpu.values[column.check], status))
        title = f"{entry(column.check, 'gpu').title}, {column.unit}"
        drawn.append((title, strip(title, dots, column.unit, bounds.get(column.check, 0))))
    return tuple(_figure(title, text) for title, text in drawn if text)


def link_plot(model: Model) -> str:
    """Host to GPU and back by message size: the median of the model, and the outliers."""
    title = f"{model.name}: between host and GPU by message size"
    cards = {(gpu.node, gpu.index): gpu for gpu in model.gpus}
    typical: list[Curve] = []
    outliers: list[Curve] = []
    for key, name, check in _WAYS:
        good = []
        for result in model.results:
            for entry_ in result["gpus"]:
                gpu = cards.get((result["node"], entry_["index"]))
                points = _points(((entry_.get("measured") or {}).get("host_link") or {}).get(key))
                if not gpu or not points:
                    continue
                if gpu.is_outlier(check):
                    outliers.append(Curve(f"{gpu.target} {name}", points, outlier=True))
                else:
                    good.append(points)
        typical += _typical(name, good)
    return _figure("Host link by message size", bandwidth_plot(title, [*typical, *outliers[:MAX_OUTLIERS]]))


def all_reduce_plot(model: Model) -> str:
    """NCCL's all-reduce by message size: the median of the nodes, the outliers, and all-reduce between nodes."""
    title = f"{model.name}: all-reduce over the GPUs of a node and of several, bus bandwidth by message size"
    points_by_node = {}
    for result in model.together:
        points = _points(((result.get("group") or {}).get("all_reduce") or {}).get("all_reduce"))
        if points:
            points_by_node[str(result["node"])] = points
    outliers = {
        node: points for node, points in points_by_node.items() if model.node_is_outlier(node, "gpu-all-reduce")
    }
    good = {node: points for node, points in points_by_node.items() if node not in outliers}
    name = next(iter(good)) if len(good) == 1 else f"{len(good)} nodes"
    curves = [Curve(node, points, outlier=True) for node, points in list(outliers.items())[:MAX_OUTLIERS]]
    drawn = bandwidth_plot(title, [*_typical(name, list(good.values())), *_between_nodes(model), *curves])
    return _figure("All-reduce by message size, bus bandwidth", drawn)


def _between_nodes(model: Model) -> list[Curve]:
    """All-reduce over several nodes; it stands in the result of the first of them."""
    results = [(result.get("group") or {}).get("all_reduce_nodes") or {} for result in model.together]
    return [
        Curve(f"across {shorten(str(entry.get('nodes') or 'nodes'), _NAME)}", points)
        for entry in results
        if (points := _points(entry.get("all_reduce")))
    ]


def heat_maps(model: Model) -> tuple[str, ...]:
    """Rates between all pairs: of each node if they are few, else of the outliers and the median of the others."""
    rates_by_node: dict[str, Rates] = {}
    for result in model.together:
        peers = (result.get("group") or {}).get("peers") or {}
        rates = {(pair["from"], pair["to"]): float(pair["gb_s"]) for pair in peers.get("pairs") or ()}
        if rates:
            rates_by_node[str(result["node"])] = rates
    if len(rates_by_node) <= FEW_NODES:
        return tuple(
            _heat(node, rates, outlier=model.node_is_outlier(node, "gpu-peers"))
            for node, rates in rates_by_node.items()
        )
    outliers = {node: rates for node, rates in rates_by_node.items() if model.node_is_outlier(node, "gpu-peers")}
    good = {node: rates for node, rates in rates_by_node.items() if node not in outliers}
    maps = [_heat(node, rates, outlier=True) for node, rates in list(outliers.items())[:MAX_OUTLIERS]]
    if good:
        nodes = fold_names(good)
        name = f"median of {len(good)} nodes" if len(nodes) > 40 else f"{nodes}, median"
        maps.append(_heat(name, _median(list(good.values())), outlier=False))
    return tuple(maps)


def _heat(name: str, rates: Rates, *, outlier: bool) -> str:
    """Without NVSwitches pairs differ by the board's wiring: then there are no outliers, and nothing is outlined."""
    drawn = heat_map(name, rates, _PAIR_SHARE * median(rates.values()) if outlier else 0)
    return _figure(f"{name}: GPU to GPU, GB/s", drawn)


def _figure(caption: str, drawn: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{drawn}</figure>" if drawn else ""


def _median(several: Sequence[Rates]) -> Rates:
    pairs = dict.fromkeys(pair for rates in several for pair in rates)
    return {pair: median(rates[pair] for rates in several if pair in rates) for pair in pairs}


def _points(listed: Any) -> tuple[Point, ...]:
    return tuple(sorted((float(point["bytes"]), float(point["gb_s"])) for point in listed or ()))


def _typical(name: str, several: Sequence[tuple[Point, ...]]) -> list[Curve]:
    """The median of curves, in a band from the slowest to the quickest."""
    by_size: dict[float, list[float]] = {}
    for points in several:
        for size, rate in points:
            by_size.setdefault(size, []).append(rate)
    if not by_size:
        return []
    ordered = sorted(by_size.items())
    middle, low, high = (tuple((size, pick(rates)) for size, rates in ordered) for pick in (median, min, max))
    return [Curve(name, middle, low, high) if len(several) > 1 else Curve(name, middle)]

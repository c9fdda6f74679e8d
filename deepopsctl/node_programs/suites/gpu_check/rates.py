"""Evaluate measurements: against the model's specification, its peers, and its own past. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from .bounds import HEALTHY, PAST_SHARE, PEERS_SHARE, SHARES, Figures, figures_of, pcie_gb_s
from .results import FAIL, PASS, SKIP, WARN, check, target_of, who, worst

Gpu = Any  # one entry of `gpus` in the result: plain JSON
Result = Any  # one node's result


class Metric(NamedTuple):
    """One number of one test: what it is called there, what it should be for a model, which shares of that are bad."""

    name: str
    test: str
    unit: str
    key: str
    figure: Callable[[Figures, Gpu], float]
    shares: Callable[[Figures], str]

    def read(self, measured: Any) -> float | None:
        """The number in what the test measured; None where an older or thinned-out result lacks it."""
        return None if measured.get(self.key) is None else float(measured[self.key])

    def written(self, value: float) -> dict[str, object]:
        """The number as the test writes it."""
        return {self.key: value}


class Curve(Metric):
    """The best point of a curve by size."""

    def read(self, measured: Any) -> float | None:
        """The largest rate."""
        return max((float(point["gb_s"]) for point in measured.get(self.key) or ()), default=None)

    def written(self, value: float) -> dict[str, object]:
        """A curve of one point."""
        return {self.key: [{"bytes": 0, "gb_s": value}]}


def _host(figures: Figures, gpu: Gpu) -> float:
    pcie = gpu.get("pcie") or {}
    return 0.0 if figures.c2c else pcie_gb_s(pcie.get("max_generation"), pcie.get("max_width"))


def _gddr(figures: Figures) -> str:
    return "memory (GDDR)" if figures.gddr else "memory"


METRICS = (
    Metric("gpu-memory-copy", "memory_bandwidth", "GB/s", "copy_gb_s", lambda row, _: row.memory, _gddr),
    Metric("gpu-memory-triad", "memory_bandwidth", "GB/s", "triad_gb_s", lambda row, _: row.memory, _gddr),
    Curve("gpu-to-device", "host_link", "GB/s", "h2d", _host, lambda _: "host"),
    Curve("gpu-from-device", "host_link", "GB/s", "d2h", _host, lambda _: "host"),
    Metric("gpu-fp32", "fp32", "TFLOP/s", "fp32_tflop_s", lambda row, _: row.fp32, lambda _: "fp32"),
    Metric("gpu-bf16", "bf16", "TFLOP/s", "bf16_tflop_s", lambda row, _: row.bf16 * row.mma, lambda _: "bf16"),
    Metric("gpu-bf16-gemm", "bf16_gemm", "TFLOP/s", "bf16_gemm_tflop_s", lambda row, _: row.bf16, lambda _: "gemm"),
)

HOST_LINKS = tuple(metric for metric in METRICS if metric.test == "host_link")


class Finding(NamedTuple):
    """Result of one comparison."""

    status: str
    text: str


def rates(results: list[Result], earlier: list[Result]) -> Iterator[dict[str, str]]:
    """One check for every metric of every GPU of these nodes."""
    gpus = [(result, gpu) for result in results for gpu in result["gpus"] if not gpu.get("error")]
    past = _by_card(earlier)
    kin = {metric.name: _by_model([gpu for _, gpu in gpus], metric) for metric in METRICS}
    for result, gpu in gpus:
        yield _model(result["node"], gpu)
        yield _memory_test(result["node"], gpu)
        for metric in METRICS:
            values = kin[metric.name].get(gpu.get("name"), [])
            yield _rate(result, gpu, metric, values, _newest(past.get(gpu.get("uuid"), []), metric, result["when"]))


def _by_model(gpus: list[Gpu], metric: Metric) -> dict[Any, list[float]]:
    """Model -> what its GPUs gave, in order."""
    by_model: dict[Any, list[float]] = {}
    for gpu in gpus:
        value = value_of(gpu, metric)
        if value is not None and gpu.get("name"):
            by_model.setdefault(gpu["name"], []).append(value)
    return {name: sorted(values) for name, values in by_model.items()}


def value_of(gpu: Gpu, metric: Metric) -> float | None:
    """The number, where the test gave one."""
    measured = (gpu.get("measured") or {}).get(metric.test) or {}
    return metric.read(measured) if measured.get("status") == "measured" else None


def against_figure(metric: Metric, gpu: Gpu, value: float) -> tuple[Finding | None, str]:
    """The model's bounds; None where the tables have none. And what is expected, for the report."""
    figures = figures_of(gpu.get("name") or "")
    if not figures:
        return None, ""
    shares, origin = SHARES["healthy"], "that a healthy one gave"
    figure = HEALTHY.get(figures.product, {}).get(metric.name, 0.0)
    if not figure:
        shares, origin = SHARES[metric.shares(figures)], "that this model is made for"
        figure = metric.figure(figures, gpu)
    if not figure:
        return None, ""
    expected = f"at least {shares.warn * figure:.4g}"
    text = f"{value / figure:.0%} of the {figure:.4g} {metric.unit} {origin}"
    status = FAIL if value < shares.fail * figure else WARN if value < shares.warn * figure else PASS
    return Finding(status, text), expected


def against_peers(value: float, values: list[float]) -> Finding | None:
    """The median of the others of this model, from the ordered values of all of them; None without others."""
    others = len(values) - 1
    if others < 1:
        return None
    middle = _median_without(values, value)
    count = "the other GPU" if others == 1 else f"the median of the {others} other GPUs"
    if value < PEERS_SHARE * middle:
        return Finding(WARN, f"{1 - value / middle:.0%} below {count} of this model ({middle:.4g}): an outlier")
    return Finding(PASS, f"as {count} of this model")


def _median_without(values: list[float], own: float) -> float:
    """The median of ordered values when one `own` is left out; quick, as clusters have thousands of GPUs."""
    place, others = bisect_left(values, own), len(values) - 1
    middle = {(others - 1) // 2, others // 2}
    return sum(values[index + (index >= place)] for index in middle) / len(middle)


def against_past(value: float, past: tuple[float, str] | None) -> Finding | None:
    """What the same GPU gave the last time it was measured; None where it never was."""
    if past is None:
        return None
    before, when = past
    change = value / before - 1 if before else 0.0
    text = f"{'down' if change < 0 else 'up'} {abs(change):.0%} since {when[:10]}"
    return Finding(WARN if value < PAST_SHARE * before else PASS, text)


def _rate(
    result: Result, gpu: Gpu, metric: Metric, values: list[float], past: tuple[float, str] | None
) -> dict[str, str]:
    where, owner = target_of(result["node"], gpu), who(result["node"], gpu)
    value = value_of(gpu, metric)
    if value is None:
        return _without_value(metric.name, where, owner, (gpu.get("measured") or {}).get(metric.test))
    bound, expected = against_figure(metric, gpu, value)
    findings = [finding for finding in (bound, against_peers(value, values), against_past(value, past)) if finding]
    shown = f"{value:.4g}"
    if not findings:
        text = "nothing to compare with: no bound for this model, no other GPU of it, no earlier result"
        return check(metric.name, where, SKIP, shown, "", metric.unit, text)
    status = worst(*(finding.status for finding in findings))
    remarks = "; ".join(finding.text for finding in findings if finding.status != PASS or status == PASS)
    message = remarks if status == PASS else f"{owner}: {remarks}"
    return check(metric.name, where, status, shown, expected, metric.unit, message)


def _without_value(name: str, where: str, owner: str, measured: Any) -> dict[str, str]:
    """A test that gave no number: skipped with its reason, or failed."""
    if not measured:
        return check(name, where, SKIP, message="not measured")
    if measured["status"] == "skip":
        return check(name, where, SKIP, message=measured["message"])
    words = "wrong results" if measured["status"] == "wrong" else "no result"
    return check(name, where, FAIL, words, "right results", message=f"{owner}: {measured['message']}")


def _model(node: str, gpu: Gpu) -> dict[str, str]:
    where, name = target_of(node, gpu), gpu.get("name") or "unknown"
    if figures_of(name):
        return check("gpu-model", where, PASS, name, "a known model")
    text = f"{who(node, gpu)}: no bounds for this model: only peers and earlier results are compared"
    return check("gpu-model", where, WARN, name, "a known model", message=text)


def _memory_test(node: str, gpu: Gpu) -> dict[str, str]:
    where = target_of(node, gpu)
    measured = (gpu.get("measured") or {}).get("memory_test")
    if not measured or measured["status"] != "measured":
        return _without_value("gpu-memory-test", where, who(node, gpu), measured)
    shown = f"{measured['patterns']} patterns over {measured['tested_mib']} MiB"
    return check("gpu-memory-test", where, PASS, shown, "no wrong word")


def _by_card(earlier: list[Result]) -> dict[Any, list[tuple[str, Gpu]]]:
    """UUID -> every earlier result of that card, in whatever slot."""
    by_card: dict[Any, list[tuple[str, Gpu]]] = {}
    for old in earlier:
        for card in old["gpus"]:
            if card.get("uuid"):
                by_card.setdefault(card["uuid"], []).append((str(old["when"]), card))
    return by_card


def _newest(measurements: list[tuple[str, Gpu]], metric: Metric, before: str) -> tuple[float, str] | None:
    """Value and time of the last measurement before this one."""
    values = [(when, value_of(card, metric)) for when, card in measurements if when < before]
    known = [(when, value) for when, value in values if value is not None]
    if not known:
        return None
    when, value = max(known)
    return value, when

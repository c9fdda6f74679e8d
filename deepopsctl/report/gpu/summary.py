"""The GPUs of a validation, by model: measurements, checks, and their lines on the terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deepopsctl.checks.catalogue.suites import entry, position
from deepopsctl.checks.check import Check, Status, worst
from deepopsctl.node_programs.suites.gpu_check.rates import METRICS, value_of
from deepopsctl.node_programs.suites.gpu_check.results import target_of
from deepopsctl.report.grouping import fold_names
from deepopsctl.report.model import Facts, ends, figure, span, spread
from deepopsctl.text.answers import mappings, text

Result = Any  # one node's result of gpucheck: plain JSON (docs/reference/gpucheck.md)
_METRICS = {metric.name: metric for metric in METRICS}
OUTLIER_STATUSES = (Status.WARN, Status.FAIL)
UNKNOWN = "unknown model"


@dataclass(frozen=True, slots=True)
class Column:
    """One number that every GPU has, and the check that evaluates it."""

    check: str
    group: str
    head: str
    unit: str


COLUMNS = (
    Column("gpu-memory-copy", "Memory", "copy", "GB/s"),
    Column("gpu-to-device", "Host link", "to GPU", "GB/s"),
    Column("gpu-from-device", "Host link", "from GPU", "GB/s"),
    Column("gpu-fp32", "Arithmetic", "fp32", "TFLOP/s"),
    Column("gpu-bf16", "Arithmetic", "bf16", "TFLOP/s"),
    Column("gpu-bf16-gemm", "Arithmetic", "GEMM", "TFLOP/s"),
    Column("gpu-temperature", "Under load", "heat", "°C"),
    Column("gpu-power", "Under load", "power", "W"),
)

# so many outliers of a model are listed; the report has all of them
MAX_OUTLIERS = 12
_RATES = (
    ("memory", ("gpu-memory-copy",), "GB/s"),
    ("host link", ("gpu-to-device", "gpu-from-device"), "GB/s"),
    ("fp32", ("gpu-fp32",), "TFLOP/s"),
    ("bf16", ("gpu-bf16",), "TFLOP/s"),
    ("GEMM", ("gpu-bf16-gemm",), "TFLOP/s"),
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: `values` and `outcomes` by the columns' checks, `complaints` in words by check."""

    node: str
    index: int
    serial: str
    status: Status
    values: Mapping[str, float]
    outcomes: Mapping[str, Check]
    complaints: Mapping[str, str]

    def is_outlier(self, check: str) -> bool:
        """Whether a check of this GPU warns or fails."""
        return _is_outlier(self.outcomes.get(check))

    @property
    def target(self) -> str:
        """`gpu01/3`."""
        return f"{self.node}/{self.index}"


def _is_outlier(check: Check | None) -> bool:
    return check is not None and check.status in OUTLIER_STATUSES


@dataclass(frozen=True, slots=True)
class Model:
    """All GPUs of one product, in the order of the nodes; results and checks of the nodes that they are in."""

    name: str
    memory: str
    gpus: tuple[Gpu, ...]
    results: tuple[Result, ...]
    # of a node with several models, one has what all its GPUs do together
    together: tuple[Result, ...]
    nodes: Mapping[str, Mapping[str, Check]]

    def node_is_outlier(self, node: str, check: str) -> bool:
        """Whether a check of the node as a whole warns or fails."""
        return _is_outlier(self.nodes.get(node, {}).get(check))

    @property
    def where(self) -> str:
        """`gpu[01-16]`."""
        return fold_names(dict.fromkeys(gpu.node for gpu in self.gpus))

    @property
    def outliers(self) -> tuple[Gpu, ...]:
        """Those with a warning or a failure, the worst first."""
        return tuple(
            sorted((gpu for gpu in self.gpus if gpu.status in OUTLIER_STATUSES), key=lambda gpu: gpu.status.severity)
        )

    @property
    def status(self) -> Status:
        """The worst of its GPUs; skip where nothing was measured."""
        measured = any(gpu.values for gpu in self.gpus)
        return min((gpu.status for gpu in self.gpus if measured or gpu.status in OUTLIER_STATUSES), default=Status.SKIP)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those in which at least one GPU has a number."""
        return tuple(column for column in COLUMNS if any(column.check in gpu.values for gpu in self.gpus))

    @property
    def versions(self) -> tuple[str, ...]:
        """`driver 580.95.05, CUDA 13.0`; with the nodes where they differ."""
        nodes_by_text: dict[str, list[str]] = {}
        for result in self.results:
            versions = result.get("versions") or {}
            words = (("driver", versions.get("driver")), ("CUDA", versions.get("cuda")))
            text = ", ".join(f"{word} {version}" for word, version in words if version)
            nodes_by_text.setdefault(text, []).append(result["node"])
        alone = len(nodes_by_text) == 1
        return tuple(
            text if alone else f"{text} on {fold_names(nodes)}" for text, nodes in nodes_by_text.items() if text
        )

    @property
    def not_measured(self) -> tuple[str, ...]:
        """Why columns are empty: one sentence for each reason."""
        reasons: dict[str, list[str]] = {}
        shown = {column.check for column in self.columns}
        for column in COLUMNS:
            checks = [gpu.outcomes[column.check] for gpu in self.gpus if column.check in gpu.outcomes]
            if column.check in _METRICS and column.check not in shown and checks:
                reasons.setdefault(checks[0].message, []).append(entry(column.check, "gpu").title)
        return tuple(f"Not measured: {', '.join(titles)} ({reason})" for reason, titles in reasons.items())


def read_models(facts: Facts) -> tuple[Model, ...]:
    """The models, in the order in which the nodes have them."""
    checks: dict[str, list[Check]] = {}
    for check in facts.checks:
        checks.setdefault(check.target, []).append(check)
    members_by_model: dict[str, list[tuple[Result, Any]]] = {}
    for result in facts.gpus:
        for gpu in mappings(result.get("gpus")):
            members_by_model.setdefault(text(gpu.get("name")) or _usual_name(result), []).append((result, gpu))
    return tuple(_model(name, members, checks) for name, members in members_by_model.items())


def unmeasured(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Nodes without a GPU to ask, as node sets with the reason."""
    reasons: dict[str, list[str]] = {}
    for result in facts.gpus:
        if not mappings(result.get("gpus")):
            why = result.get("simulated") or result.get("problem") or "the driver sees no GPU"
            reasons.setdefault(str(why), []).append(str(result["node"]))
    return tuple((fold_names(nodes), text) for text, nodes in reasons.items())


def gpu_lines(facts: Facts) -> Iterator[tuple[Status, str]]:
    """Status and text, in the order of the models."""
    for model in read_models(facts):
        yield model.status, _summary(model)
        for gpu in model.outliers[:MAX_OUTLIERS]:
            yield gpu.status, _outlier_line(gpu)
        left = len(model.outliers) - MAX_OUTLIERS
        if left > 0:
            yield model.outliers[-1].status, f"and {left} more: see the report"
    for nodes, reason in unmeasured(facts):
        yield Status.SKIP, f"{nodes}: {reason}"


def _usual_name(result: Result) -> str:
    """What the others of a node are, for a GPU that does not open."""
    names = Counter(text(gpu["name"]) for gpu in mappings(result.get("gpus")) if gpu.get("name"))
    return names.most_common(1)[0][0] if names else UNKNOWN


def _model(name: str, members: list[tuple[Result, Any]], checks: Mapping[str, list[Check]]) -> Model:
    sizes = [gpu["memory_mib"] for _, gpu in members if gpu.get("memory_mib")]
    gpus = [_gpu(result["node"], gpu, checks.get(target_of(result["node"], gpu), [])) for result, gpu in members]
    results = {result["node"]: result for result, _ in members}
    memory = f"{max(sizes) / 1024:.0f} GiB" if sizes else ""
    nodes = {node: {check.name: check for check in checks.get(node, ())} for node in results}
    together = tuple(result for result in results.values() if _usual_name(result) == name)
    return Model(name, memory, tuple(gpus), tuple(results.values()), together, nodes)


def _gpu(node: str, gpu: Any, checks: list[Check]) -> Gpu:
    bad_checks = sorted(
        {check.name for check in checks if check.status in OUTLIER_STATUSES}, key=lambda name: position(name, "gpu")
    )
    return Gpu(
        node=node,
        index=int(gpu["index"]),
        serial=str(gpu.get("serial") or gpu.get("uuid") or ""),
        status=worst(checks),
        values=dict(_values(gpu)),
        outcomes={check.name: check for check in checks},
        complaints={name: entry(name, "gpu").title for name in bad_checks},
    )


def _values(gpu: Any) -> Iterator[tuple[str, float]]:
    for name, metric in _METRICS.items():
        value = value_of(gpu, metric)
        if value is not None:
            yield name, value
    load = gpu.get("load") or {}
    for name, key in (("gpu-temperature", "temperature"), ("gpu-power", "power")):
        if load.get(key) is not None:
            yield name, float(load[key])


def _summary(model: Model) -> str:
    """`16 x NVIDIA H100 80GB HBM3 on gpu[01-02]: memory 3.00–3.03 TB/s, ...`, without outliers."""
    parts = []
    for name, checks, unit in _RATES:
        pairs = [(gpu, check) for gpu in model.gpus for check in checks if check in gpu.values]
        good = [gpu.values[check] for gpu, check in pairs if not gpu.is_outlier(check)]
        values = good or [gpu.values[check] for gpu, check in pairs]
        if values:
            parts.append(f"{name} {_rate(values, unit)}")
    rates = ", ".join(parts) or "not measured"
    return f"{len(model.gpus)} x {model.name} on {model.where}: {rates}"


def _rate(values: list[float], unit: str) -> str:
    if unit == "GB/s" and min(values) >= 1000:
        return f"{span(f'{value / 1000:.2f}' for value in ends(values))} TB/s"
    return f"{spread(values)} {unit}"


def _outlier_line(gpu: Gpu) -> str:
    words = [
        f"{title} {figure(gpu.values[check])} {gpu.outcomes[check].unit}" if check in gpu.values else title
        for check, title in gpu.complaints.items()
    ]
    serial = f" (serial {gpu.serial})" if gpu.serial else ""
    return f"{gpu.target}{serial}: {', '.join(words)}"

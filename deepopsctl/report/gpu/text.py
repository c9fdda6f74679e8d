"""GPUs on the terminal: a line for each model, one for each outlier. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from deepopsctl.checks.check import Status
from deepopsctl.report.gpu.summary import Gpu, Model, read_models, unmeasured
from deepopsctl.report.model import Facts, ends, figure, span, spread

# so many outliers of a model are listed; the report has all of them
MAX_OUTLIERS = 12
_RATES = (
    ("memory", ("gpu-memory-copy",), "GB/s"),
    ("host link", ("gpu-to-device", "gpu-from-device"), "GB/s"),
    ("fp32", ("gpu-fp32",), "TFLOP/s"),
    ("bf16", ("gpu-bf16",), "TFLOP/s"),
    ("GEMM", ("gpu-bf16-gemm",), "TFLOP/s"),
)


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

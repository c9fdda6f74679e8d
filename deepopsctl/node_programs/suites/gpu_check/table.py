"""Results and checks as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .rates import METRICS, value_of
from .results import FAIL, PASS, SKIP, WARN, is_measured, status_of

Result = Any  # one node's result: plain JSON
_HEADS = ("copy", "triad", "to GPU", "from GPU", "fp32", "bf16", "GEMM")
_VERDICTS = {
    PASS: "all GPUs are as they should be, as far as they were measured",
    WARN: "the GPUs work, with reservations",
    FAIL: "something is wrong with these GPUs",
    SKIP: "nothing could be measured",
}
_UNMEASURED = "what the driver reports is as it should be; no GPU was measured"


def lines(results: list[Result], checks: list[dict[str, str]], *, everything: bool = False) -> Iterator[str]:
    """The measurements, failed and skipped checks, and the overall status."""
    for result in results:
        yield from _numbers(result)
    if everything:
        yield from _section("All checks", [_checked(entry) for entry in checks])
    for status, title in ((FAIL, "Failed"), (WARN, "Warnings")):
        yield from _section(title, [_entry_text(entry) for entry in checks if entry["status"] == status])
    yield from _section("Skipped", list(_folded(checks)))
    yield ""
    status = status_of(checks)
    unmeasured = status == PASS and not is_measured(results)
    yield f"{status}: {_UNMEASURED if unmeasured else _VERDICTS[status]}"


def _numbers(result: Result) -> Iterator[str]:
    versions = result["versions"]
    driver, cuda = (versions.get(name) or "none" for name in ("driver", "cuda"))
    yield f"{result['node']}  driver {driver}  CUDA {cuda}"
    if result.get("problem"):
        yield "  " + result["problem"]
        return
    rows: list[tuple[str, ...]] = [
        ("", "GPU", "serial", *_HEADS, "°C", "W"),
        ("", "", "", *("GB/s",) * 4, *("TFLOP/s",) * 3, "", ""),
    ]
    for gpu in result["gpus"]:
        load = gpu.get("load") or {}
        shown = [_shown(value_of(gpu, metric)) for metric in METRICS]
        names = (str(gpu["index"]), gpu.get("name") or "?", gpu.get("serial") or "?")
        rows.append((*names, *shown, _shown(load.get("temperature")), _shown(load.get("power"))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if column < 3 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths))
        ]
        yield ("  " + "  ".join(cells)).rstrip()


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _section(title: str, entries: list[str]) -> Iterator[str]:
    if entries:
        yield ""
        yield title
        yield from ("  " + entry for entry in entries)


def _entry_text(entry: dict[str, str]) -> str:
    return f"{entry['name']}  {entry['target']}  {entry['message']}"


def _checked(entry: dict[str, str]) -> str:
    measured = " ".join(filter(None, (entry["measured"], entry["unit"])))
    expected = f" ({entry['expected']})" if entry["expected"] else ""
    return f"{entry['status']:<4}  {entry['name']}  {entry['target']}  {measured}{expected}"


def _folded(checks: list[dict[str, str]]) -> Iterator[str]:
    """One line for each reason, however many checks and GPUs it stands for."""
    groups: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for entry in checks:
        if entry["status"] == SKIP:
            names, targets = groups.setdefault(entry["message"], ({}, {}))
            names[entry["name"]] = targets[entry["target"]] = None
    for message, (names, targets) in groups.items():
        where = next(iter(targets)) if len(targets) == 1 else f"{len(targets)} targets"
        yield f"{', '.join(names)}  {where}  {message}"

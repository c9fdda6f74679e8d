"""What the examples printed: losses that have to be those of a single process, and rates. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._slurm_jobs.session import Outcome
from . import checks
from .checks import check, failed, skip

RESULT, SOFTWARE = "result: ", "DEEPOPS-SOFTWARE "
# a line of a job's output, and root of its node may write any
LONGEST = 1000


class Result(NamedTuple):
    """One training, as its first process printed it."""

    node: str
    processes: int
    device: str
    loss: float
    rate: float


def results(out: str) -> list[Result]:
    """All results in a job's output; what is none is left out."""
    parsed = []
    for line in out.splitlines():
        entry = _entry(line, RESULT)
        try:
            made = Result(
                str(entry["node"]), int(entry["processes"]), str(entry["device"]), float(entry["loss"]),
                float(entry["samples_per_s"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            continue
        if made.processes > 0 and math.isfinite(made.rate):
            parsed.append(made)
    return parsed


def software(out: str) -> dict[str, dict[str, str]]:
    """Versions of packages by node."""
    parsed = {}
    for line in out.splitlines():
        entry = _entry(line, SOFTWARE)
        if isinstance(entry.get("versions"), dict):
            parsed[str(entry.get("node"))] = {str(name): str(text)[:40] for name, text in entry["versions"].items()}
    return parsed


def _entry(line: str, mark: str) -> dict[str, Any]:
    start = line.find(mark)
    if start < 0 or len(line) > LONGEST:
        return {}
    try:
        entry = json.loads(line[start + len(mark) :])
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def why(outcome: Outcome) -> str:
    """What a failed job said: of many lines of torchrun's the last one that has an error in it."""
    if not outcome.ended:
        return one_line(outcome.why)
    lines = [line.strip() for line in outcome.err.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and not line.startswith(("raise ", "srun:"))]
    causes = [line for line in errors if "ChildFailedError" not in line]
    return one_line((causes or errors or lines or [outcome.why])[-1])


def of_software(node: str, versions: Mapping[str, str], source: str) -> Check:
    """The check of what is installed on a node."""
    shown = ", ".join(f"{name} {versions[name]}" for name in versions)
    if "torch" not in versions:
        text = f"{source} has no torch: declare an environment with it (docs/deploy/environments.md)"
        return failed(checks.SOFTWARE, node, text, shown or "none", "torch")
    return check(checks.SOFTWARE, node, PASS, shown, "torch", message=source)


def of_loss(name: str, target: str, loss: float, reference: float, tolerance: float, about: str) -> Check:
    """A loss has to be that of a single process with the same batches."""
    away = abs(loss - reference) / max(abs(reference), 1e-12)
    expected = f"{reference:.5g} within {tolerance:.2g}"
    good = math.isfinite(loss) and away <= tolerance
    text = about if good else f"{about}; a single process has another loss: processes do not share their gradients"
    return check(name, target, PASS if good else FAIL, f"{loss:.5g}", expected, message=text)


def of_job(name: str, target: str, outcome: Outcome) -> Check:
    """The check of a job without a result."""
    return check(name, target, SKIP if outcome.busy else FAIL, "no result", "a loss", message=why(outcome))


def about(result: Result) -> str:
    """`4 processes, cuda, 1200 samples/s each`."""
    count = "1 process" if result.processes == 1 else f"{result.processes} processes"
    return f"{count} on {result.device}, {result.rate / result.processes:.4g} samples/s each"


def rate(name: str, target: str, value: float, unit: str, kind: str, share: float) -> dict[str, Any]:
    """A rate as deepopsctl compares it."""
    return {
        "suite": checks.SUITE, "name": name, "target": target, "kind": kind, "value": value, "unit": unit,
        "share": share,
    }  # fmt: skip


def rates(alone: Sequence[Result], together: Result | None, target: str, share: float) -> Iterator[dict[str, Any]]:
    """Samples of each node by itself, and what part of that remains when all train together."""
    for each in alone:
        kind = f"{each.processes} {each.device}"
        yield rate(checks.RATE, each.node, each.rate / each.processes, "samples/s", kind, share)
    if together and alone and together.processes > alone[0].processes:
        usual = median(each.rate / each.processes for each in alone)
        if usual > 0 and together.rate > 0:
            value = together.rate / together.processes / usual * 100
            yield rate(checks.EFFICIENCY, target, value, "%", target, share)


def without_method(method: str, target: str, source: str) -> Check:
    """A way to train whose package is not there."""
    return skip(checks.of_method(method), target, f"{source} has no {checks.METHODS[method]}")

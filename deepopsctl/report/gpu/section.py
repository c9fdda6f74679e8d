"""The GPU part of the HTML page: for each model its table, outliers first, and its charts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from deepopsctl.checks.catalogue.suites import entry
from deepopsctl.checks.check import Status
from deepopsctl.report.gpu.charts import all_reduce_plot, heat_maps, link_plot, strips
from deepopsctl.report.gpu.summary import OUTLIER_STATUSES, Column, Gpu, Model, read_models, unmeasured
from deepopsctl.report.grouping import fold_names
from deepopsctl.report.model import Facts, spread, whole

# up to so many GPUs of a model each has a line of its own; of more, so many outliers with the same complaints
FEW = 24
FEW_OUTLIERS = 8
AT_A_GLANCE = 26
_BOUND = re.compile(r"at least ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Cell:
    """One number, or the range of several GPUs; `status` only for outliers."""

    text: str
    status: str = ""
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One GPU, or several equal ones."""

    label: str
    count: int
    serial: str
    status: Status
    cells: tuple[Cell, ...]
    complaints: str


@dataclass(frozen=True, slots=True)
class Block:
    """One GPU model. Charts are SVG with escaped text."""

    model: Model
    groups: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    strips: tuple[str, ...]
    plots: tuple[str, ...]
    heats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The whole part; `unmeasured` are nodes without a GPU to ask, with the reason."""

    blocks: tuple[Block, ...]
    unmeasured: tuple[tuple[str, str], ...]


def build_section(facts: Facts) -> Section:
    """What the template shows; nothing where no GPU was looked at."""
    return Section(tuple(_block(model) for model in read_models(facts)), unmeasured(facts))


def _block(model: Model) -> Block:
    columns = model.columns
    return Block(
        model=model,
        groups=tuple((group, len(list(members))) for group, members in groupby(column.group for column in columns)),
        columns=columns,
        lines=tuple(_lines(model, columns)),
        strips=strips(model, {column.check: bound_of(model, column) for column in columns}),
        plots=tuple(filter(None, (link_plot(model), all_reduce_plot(model)))),
        heats=heat_maps(model),
    )


def bound_of(model: Model, column: Column) -> float:
    """Below this is a warning; 0 where the GPUs have no common bound."""
    expected = {gpu.outcomes[column.check].expected for gpu in model.gpus if column.check in gpu.outcomes}
    match = _BOUND.fullmatch(expected.pop()) if len(expected) == 1 else None
    return float(match[1]) if match else 0.0


def _lines(model: Model, columns: Sequence[Column]) -> Iterable[Line]:
    if len(model.gpus) <= FEW:
        return [_line([gpu], columns) for gpu in model.gpus]
    groups: dict[tuple[Status, tuple[str, ...]], list[Gpu]] = {}
    for gpu in model.gpus:
        # skipped and passed are both good
        status = gpu.status if gpu.status in OUTLIER_STATUSES else Status.PASS
        groups.setdefault((status, tuple(gpu.complaints)), []).append(gpu)
    lines = []
    for (status, _), members in sorted(groups.items(), key=lambda pair: (pair[0][0].severity, len(pair[1]))):
        alone = status in OUTLIER_STATUSES and len(members) <= FEW_OUTLIERS
        lines += [_line([gpu], columns) for gpu in members] if alone else [_line(members, columns)]
    return lines


def _line(members: Sequence[Gpu], columns: Sequence[Column]) -> Line:
    first = members[0]
    return Line(
        label=_label(members),
        count=len(members),
        serial=first.serial if len(members) == 1 else "",
        status=min((gpu.status for gpu in members), key=lambda status: status.severity),
        cells=tuple(_cell(members, column) for column in columns),
        complaints=", ".join(first.complaints.values()),
    )


def _label(members: Sequence[Gpu]) -> str:
    """Where they are, as long as the list is short."""
    text = fold_names(gpu.target for gpu in members)
    if len(text) <= AT_A_GLANCE:
        return text
    return "these" if members[0].complaints else "all others"


def _cell(members: Sequence[Gpu], column: Column) -> Cell:
    values = [gpu.values[column.check] for gpu in members if column.check in gpu.values]
    checks = [gpu.outcomes[column.check] for gpu in members if column.check in gpu.outcomes]
    worst = min(checks, key=lambda check: check.status.severity, default=None)
    status = str(worst.status) if worst and worst.status in OUTLIER_STATUSES else ""
    title = f"{entry(column.check, 'gpu').title}, {column.unit}"
    expected = f"expected {worst.expected}" if worst and worst.expected else ""
    message = worst.message if worst and len(members) == 1 else ""
    shown = (whole if column.unit == "°C" else spread)(values) if values else "–"
    return Cell(shown, status, "\n".join(filter(None, (title, expected, message))))

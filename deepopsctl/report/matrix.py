"""Nodes against checks: which node is odd. Nodes that are alike share a row once there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from deepopsctl.checks import Check, Status, worst
from deepopsctl.report.catalogue import PER_NODE, entry, position
from deepopsctl.report.entry import Entry
from deepopsctl.report.facts import Facts
from deepopsctl.report.folding import fold_names

# up to so many nodes each has a row of its own
FEW = 24


@dataclass(frozen=True, slots=True)
class Cell:
    """What one check found on one node, or on all nodes of a row; None in a row where it was not made."""

    status: Status
    tip: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One node, or several that are alike in every column."""

    label: str
    count: int
    status: Status
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Square:
    """One node on the map."""

    name: str
    status: Status


@dataclass(frozen=True, slots=True)
class Matrix:
    """The whole picture; `groups` are headings with the number of columns they span; `squares` only for many nodes."""

    groups: tuple[tuple[str, int], ...]
    columns: tuple[Entry, ...]
    rows: tuple[MatrixRow, ...]
    squares: tuple[Square, ...]


def build_matrix(facts: Facts) -> Matrix:
    """The matrix of a validation's nodes, in the order of cluster.yml, the odd ones first where nodes share rows."""
    by_node: dict[str, dict[str, Check]] = {name: {} for name in facts.nodes}
    for check in facts.checks:
        if check.name in PER_NODE and check.target in by_node:
            by_node[check.target][check.name] = check
    tested = {name: checks for name, checks in by_node.items() if checks}
    names = sorted({name for checks in tested.values() for name in checks}, key=position)
    columns = tuple(entry(name) for name in names)
    rows = [_row([name], checks, names) for name, checks in tested.items()]
    many = len(rows) > FEW
    return Matrix(
        groups=tuple((group, len(list(members))) for group, members in groupby(column.group for column in columns)),
        columns=columns,
        rows=_shared(tested, names) if many else tuple(rows),
        squares=tuple(Square(row.label, row.status) for row in rows) if many else (),
    )


def _row(nodes: Sequence[str], checks: dict[str, Check], names: Sequence[str]) -> MatrixRow:
    alone = len(nodes) == 1
    return MatrixRow(
        label=fold_names(nodes),
        count=len(nodes),
        status=worst(checks.values()),
        cells=tuple(_cell(checks[name], alone=alone) if name in checks else None for name in names),
    )


def _cell(check: Check, *, alone: bool) -> Cell:
    title = f"{entry(check.name).title}: {check.status}"
    unit = f" {check.unit}" if check.unit else ""
    measured = f"{check.measured}{unit}, expected {check.expected}{unit}" if check.measured else ""
    return Cell(check.status, "\n".join(filter(None, [title, measured, check.message])) if alone else title)


def _shared(tested: dict[str, dict[str, Check]], names: Sequence[str]) -> tuple[MatrixRow, ...]:
    """One row for all nodes with the same outcomes."""
    alike: dict[tuple[Status | None, ...], list[str]] = {}
    for node, checks in tested.items():
        key = tuple(checks[name].status if name in checks else None for name in names)
        alike.setdefault(key, []).append(node)
    rows = [_row(nodes, tested[nodes[0]], names) for nodes in alike.values()]
    return tuple(sorted(rows, key=lambda row: row.status.severity))

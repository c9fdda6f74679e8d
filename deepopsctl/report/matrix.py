"""Nodes against checks. Equal nodes share a row once there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from deepopsctl.checks.catalogue.entry import Entry
from deepopsctl.checks.catalogue.smoke import PER_NODE, entry, position
from deepopsctl.checks.check import Check, Status, worst
from deepopsctl.report.grouping import fold_names
from deepopsctl.report.model import Facts

# the checks of one node by name; a check of GPUs is made once for each of them
_Checks = Mapping[str, Sequence[Check]]
# up to so many nodes each has a row of its own
FEW = 24


@dataclass(frozen=True, slots=True)
class Cell:
    """What one check found on one node, or on all nodes of a row; None in a row where it was not made."""

    status: Status
    tip: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One node, or several that are equal in every column."""

    label: str
    count: int
    status: Status
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class NodeTile:
    """One node on the map."""

    name: str
    status: Status


@dataclass(frozen=True, slots=True)
class Matrix:
    """The whole matrix; `groups` are headings with the number of columns they span; `tiles` only for many nodes."""

    groups: tuple[tuple[str, int], ...]
    suite: str
    columns: tuple[Entry, ...]
    rows: tuple[MatrixRow, ...]
    tiles: tuple[NodeTile, ...]


def build_matrices(facts: Facts) -> tuple[Matrix, ...]:
    """One for each suite that looked at nodes."""
    return tuple(matrix for suite in facts.suites if (matrix := build_matrix(facts, suite)).rows)


def build_matrix(facts: Facts, suite: str) -> Matrix:
    """The matrix of a suite's nodes, in the order of cluster.yml, failures first if nodes share rows."""
    by_node: dict[str, dict[str, list[Check]]] = {name: {} for name in facts.nodes}
    for check in facts.checks:
        if check.suite == suite and check.name in PER_NODE and check.place in by_node:
            by_node[check.place].setdefault(check.name, []).append(check)
    tested: dict[str, _Checks] = {name: checks for name, checks in by_node.items() if checks}
    names = sorted({name for checks in tested.values() for name in checks}, key=lambda name: position(name, suite))
    columns = tuple(entry(name, suite) for name in names)
    rows = [_row([name], checks, names) for name, checks in tested.items()]
    many = len(rows) > FEW
    return Matrix(
        suite=suite,
        groups=tuple((group, len(list(members))) for group, members in groupby(column.group for column in columns)),
        columns=columns,
        rows=_shared(tested, names) if many else tuple(rows),
        tiles=tuple(NodeTile(row.label, row.status) for row in rows) if many else (),
    )


def _row(nodes: Sequence[str], checks: _Checks, names: Sequence[str]) -> MatrixRow:
    alone = len(nodes) == 1
    return MatrixRow(
        label=fold_names(nodes),
        count=len(nodes),
        status=worst(check for listed in checks.values() for check in listed),
        cells=tuple(_cell(checks[name], alone=alone) if name in checks else None for name in names),
    )


def _cell(checks: Sequence[Check], *, alone: bool) -> Cell:
    """A node's outcome; of its GPUs the worst."""
    first, status = checks[0], worst(checks)
    title = f"{entry(first.name, first.suite).title}: {status}"
    if not alone:
        return Cell(status, title)
    if len(checks) == 1:
        return Cell(status, "\n".join(filter(None, [title, _measured(first), first.message])))
    bad = [check for check in checks if check.status in (Status.WARN, Status.FAIL)]
    return Cell(status, "\n".join([title, *(f"{check.target}: {check.message or _measured(check)}" for check in bad)]))


def _measured(check: Check) -> str:
    unit = f" {check.unit}" if check.unit else ""
    return f"{check.measured}{unit}, expected {check.expected}{unit}" if check.measured else ""


def _shared(tested: dict[str, _Checks], names: Sequence[str]) -> tuple[MatrixRow, ...]:
    """One row for all nodes with the same outcomes."""
    nodes_by_outcome: dict[tuple[Status | None, ...], list[str]] = {}
    for node, checks in tested.items():
        key = tuple(worst(checks[name]) if name in checks else None for name in names)
        nodes_by_outcome.setdefault(key, []).append(node)
    rows = [_row(nodes, tested[nodes[0]], names) for nodes in nodes_by_outcome.values()]
    return tuple(sorted(rows, key=lambda row: row.status.severity))

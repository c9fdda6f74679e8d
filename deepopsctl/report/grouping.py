"""Equal results of many nodes as one row with a node set, and nodes against checks: 500 equal nodes are one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from deepopsctl.checks.catalogue.entry import Entry
from deepopsctl.checks.catalogue.suites import PER_NODE, entry, position
from deepopsctl.checks.check import Check, Status, worst
from deepopsctl.report.model import Facts
from deepopsctl.text.node_sets import fold

GPU_TARGET = re.compile(r"/\d+$")
# up to so many GPUs are listed each, with its serial number
FEW_CARDS = 8
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")

# the checks of one node by name; a check of GPUs is made once for each of them
_Checks = Mapping[str, Sequence[Check]]
# up to so many nodes each has a row of its own
FEW = 24


@dataclass(frozen=True, slots=True)
class Row:
    """One check with one outcome, and everything it happened on."""

    name: str
    status: Status
    targets: tuple[str, ...]
    measured: str
    expected: str
    message: str
    suite: str = "smoke"
    hint: str = ""

    @property
    def entry(self) -> Entry:
        """What the check is."""
        return entry(self.name, self.suite)

    @property
    def advice(self) -> str:
        """What to do: about this very case, else about such a check."""
        return self.hint or self.entry.advice

    @property
    def gist(self) -> str:
        """The message without the card that it begins with: where there is little room, `where` says that."""
        return self.message.removeprefix(_card(self.message, self.targets[0])) if self.targets else self.message

    @property
    def where(self) -> str:
        """The targets as a node set."""
        return fold_names(self.targets)


def fold_names(names: Iterable[str]) -> str:
    """Names as a node set; unchanged if one of them is not a node name (partitions may have unusual ones)."""
    listed = list(names)
    try:
        if any(GPU_TARGET.search(name) for name in listed):
            return _fold_gpus(listed)
        return _fold_storage(listed) if all("/" in name for name in listed) else fold(listed)
    except ValueError:
        return ", ".join(listed)


def fold_checks(checks: Iterable[Check]) -> tuple[Row, ...]:
    """Rows by suite, in the order of its catalogue; within a check the worst first."""
    groups: dict[tuple[str, ...], list[Check]] = {}
    for check in checks:
        groups.setdefault(_key(check), []).append(check)
    rows = [_row(members) for members in groups.values()]
    suites = list(dict.fromkeys(row.suite for row in rows))
    return tuple(sorted(rows, key=lambda row: (suites.index(row.suite), *_place(row))))


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
    rows = [_matrix_row([name], checks, names) for name, checks in tested.items()]
    many = len(rows) > FEW
    return Matrix(
        suite=suite,
        groups=tuple((group, len(list(members))) for group, members in groupby(column.group for column in columns)),
        columns=columns,
        rows=_shared(tested, names) if many else tuple(rows),
        tiles=tuple(NodeTile(row.label, row.status) for row in rows) if many else (),
    )


def _fold_gpus(targets: Iterable[str]) -> str:
    """GPUs as `gpu[01-15]/[0-7],gpu16/[0-2,4-7]`: nodes that have the same ones together."""
    indices: dict[str, list[int]] = {}
    for target in targets:
        node, _, index = target.partition("/")
        indices.setdefault(node, []).extend([int(index)] if index else [])
    nodes_by_indices: dict[tuple[int, ...], list[str]] = {}
    for node, listed in indices.items():
        nodes_by_indices.setdefault(tuple(sorted(listed)), []).append(node)
    return ",".join(fold(nodes) + _indices(listed) for listed, nodes in nodes_by_indices.items())


def _fold_storage(targets: Iterable[str]) -> str:
    """Entries of `storage` as `gpu[01-16]/home`: the nodes of each entry together."""
    nodes: dict[str, list[str]] = {}
    for target in targets:
        node, _, name = target.partition("/")
        nodes.setdefault(name, []).append(node)
    return ",".join(f"{fold(listed)}/{name}" for name, listed in nodes.items())


def _indices(listed: tuple[int, ...]) -> str:
    """`/[0-2,4]`."""
    ranges: list[list[int]] = []
    for index in listed:
        if ranges and ranges[-1][-1] == index - 1:
            ranges[-1] = [ranges[-1][0], index]
        else:
            ranges.append([index])
    text = ",".join("-".join(map(str, ends)) for ends in ranges)
    return f"/{text}" if len(listed) == 1 else f"/[{text}]" if listed else ""


def _place(row: Row) -> tuple[int, str, int]:
    return position(row.name, row.suite), row.name, row.status.severity


def _key(check: Check) -> tuple[str, ...]:
    base = (check.suite, check.name, str(check.status), _anonymous(check.expected, check.target))
    if check.status is Status.PASS and check.place != check.target:
        # thousands of GPUs pass in slightly different words: "up 1% since ..."
        return base
    if check.status in (Status.PASS, Status.SKIP):
        return (*base, _shape(_anonymous(check.message, check.target)))
    return (*base, _shape(_anonymous(check.measured, check.target)), _shape(_anonymous(check.message, check.target)))


def _anonymous(text: str, target: str) -> str:
    card = _card(text, target)
    return text.removeprefix(card).replace(target, "NODE") if target else text


def _card(text: str, target: str) -> str:
    """How gpucheck's messages begin: `gpu01 GPU 3 (MODEL, serial 165...): `; '' for other texts."""
    node, slash, index = target.partition("/")
    if not slash or not text.startswith(f"{node} GPU {index} ("):
        return ""
    head, end, _ = text.partition("): ")
    return head + end


def _shape(text: str) -> str:
    """The text without its numbers: times and job ids differ where nothing else does."""
    return _NUMBER.sub("N", text)


def _row(members: list[Check]) -> Row:
    first = members[0]
    return Row(
        name=first.name,
        status=first.status,
        targets=tuple(check.target for check in members),
        measured=_with_unit(_common([(check.measured, check.target) for check in members]), first.unit),
        expected=_with_unit(_common([(check.expected, check.target) for check in members]), first.unit),
        message=_message(members),
        suite=first.suite,
        hint=first.hint,
    )


def _message(members: list[Check]) -> str:
    """The common message; for a few GPUs, with their serial numbers."""
    neutral = list(dict.fromkeys(_anonymous(check.message, check.target) for check in members))
    if len(members) == 1 or len({check.message for check in members}) == 1:
        return members[0].message
    if members[0].status is Status.PASS and len(neutral) > 1 and members[0].place != members[0].target:
        return ""
    text = neutral[0].replace("NODE", "the node") + (" ..." if len(neutral) > 1 else "")
    cards = [(check.target, _card(check.message, check.target)) for check in members]
    if len(cards) > FEW_CARDS or not all(card for _target, card in cards):
        return text
    return f"{text} ({'; '.join(f'{target} {_serial(card)}' for target, card in cards)})"


def _serial(card: str) -> str:
    return card.rpartition(", ")[2].removesuffix("): ")


def _common(texts: list[tuple[str, str]]) -> str:
    """What the texts have in common: the text itself, a range of numbers, or the first one's words."""
    plain = list(dict.fromkeys(text for text, _target in texts))
    if len(plain) == 1:
        return plain[0]
    neutral = {_anonymous(text, target) for text, target in texts}
    if len(neutral) == 1:
        text = neutral.pop()
        return "its own name" if text == "NODE" else text.replace("NODE", "the node")
    heads = [match for text in plain if (match := _NUMBER.match(text.strip()))]
    if len(heads) == len(plain):
        low, high = (pick(heads, key=lambda match: float(match[0]))[0] for pick in (min, max))
        return f"{low} to {high}" if low != high else low
    return f"{plain[0]} ..."


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if text and unit else text


def _matrix_row(nodes: Sequence[str], checks: _Checks, names: Sequence[str]) -> MatrixRow:
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
    rows = [_matrix_row(nodes, tested[nodes[0]], names) for nodes in nodes_by_outcome.values()]
    return tuple(sorted(rows, key=lambda row: row.status.severity))

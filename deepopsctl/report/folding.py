"""Checks that say the same about many nodes, as one row with a node set: 500 equal nodes are one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from deepopsctl.checks import Check, Status
from deepopsctl.nodelist import fold
from deepopsctl.report.catalogue import entry, position
from deepopsctl.report.entry import Entry

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


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
    def where(self) -> str:
        """The targets as a node set."""
        return fold_names(self.targets)


def fold_names(names: Iterable[str]) -> str:
    """Names as a node set; as they are where one of them is no node name (partitions may have odd ones)."""
    listed = list(names)
    try:
        return fold(listed)
    except ValueError:
        return ", ".join(listed)


def fold_checks(checks: Iterable[Check]) -> tuple[Row, ...]:
    """Rows in the order of the catalogue; within a check the worst first."""
    groups: dict[tuple[str, ...], list[Check]] = {}
    for check in checks:
        groups.setdefault(_key(check), []).append(check)
    rows = [_row(members) for members in groups.values()]
    return tuple(sorted(rows, key=lambda row: (position(row.name, row.suite), row.name, row.status.severity)))


def _key(check: Check) -> tuple[str, ...]:
    base = (check.suite, check.name, str(check.status), _anonymous(check.expected, check.target))
    if check.status in (Status.PASS, Status.SKIP):
        return (*base, _shape(_anonymous(check.message, check.target)))
    return (*base, _shape(_anonymous(check.measured, check.target)), _shape(_anonymous(check.message, check.target)))


def _anonymous(text: str, target: str) -> str:
    return text.replace(target, "NODE") if target else text


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
        message=_common([(check.message, check.target) for check in members]),
        suite=first.suite,
        hint=first.hint,
    )


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

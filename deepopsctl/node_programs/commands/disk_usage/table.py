"""The table that users see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Callable

from ..._shared.values import format_size, short
from .rows import COUNTED, PROJECT, WHOLE, Amount, Row

_HEAD = ("Description", "Space", "# of files")


def size(number: int | None) -> str:
    """`12 GiB`, `1.5 TiB`; `-` for what has no limit."""
    return "-" if number is None else format_size(number)


def count(number: int | None) -> str:
    """`512`, `120k`, `1.5M`."""
    if number is None:
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return short(number / limit) + unit
    return str(number)


def description(row: Row) -> str:
    """Description of the row."""
    if row.kind == WHOLE:
        return f"{row.path} (all users)"
    when = ", " + row.source if row.source.startswith(COUNTED) else ""
    return f"{row.path} ({'project ' if row.kind == PROJECT else ''}{row.who}{when})"


def render(rows: Sequence[Row], now: int) -> str:
    """The table, then remarks."""
    lines = [_HEAD] + [_cells(row) for row in rows if not row.problem]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    return "\n".join(text + _remarks(rows, now)) + "\n"


def _cells(row: Row) -> Sequence[str]:
    return (description(row), _amount(row.usage.space, size), _amount(row.usage.files, count))


def _amount(amount: Amount, write: Callable[[int | None], str]) -> str:
    return f"{write(amount.used)}{'*' if amount.is_over else ''}/{write(amount.limit)}"


def _remarks(rows: Sequence[Row], now: int) -> list[str]:
    remarks = []
    for row in rows:
        if row.problem:
            remarks.append(f"{description(row)}: not known: {row.problem}")
        elif row.usage.space.is_over or row.usage.files.is_over:
            remarks.append(f"* {description(row)}: over its limit{_grace(row.usage.grace, now)}")
    if any(row.kind == WHOLE and not row.problem for row in rows):
        remarks.append("(all users): a file system without quotas, as df has it")
    return ["", *remarks] if remarks else []


def _grace(end: int | None, now: int) -> str:
    if end is None:
        return ""
    if end <= now:
        return ", nothing more can be written"
    return f"; nothing more can be written from {time.strftime('%Y-%m-%d %H:%M', time.localtime(end))} on"

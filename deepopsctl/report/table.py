"""The table for a terminal: by group, equal nodes folded, warnings and failures last, with advice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepopsctl.checks.check import Status
from deepopsctl.report.gpu.summary import gpu_lines
from deepopsctl.report.grouping import Row, fold_checks
from deepopsctl.report.model import Facts
from deepopsctl.text.node_sets import shorten

TITLE_WIDTH = 21
# for the node set: on a wide terminal, on a narrow one
WHERE_WIDTHS, NARROW = (26, 14), 90
INDENT = " " * 8  # as wide as a status with its blanks


@dataclass(frozen=True, slots=True)
class Line:
    """One line; a status stands before the text and may be coloured, a heading stands alone."""

    text: str
    status: Status | None = None
    heading: bool = False

    def plain(self) -> str:
        """The line without colours."""
        return f"  {self.status:<4}  {self.text}" if self.status else self.text


def table(facts: Facts, width: int = 110) -> tuple[Line, ...]:
    """All lines but the verdict."""
    rows = fold_checks(facts.checks)
    lines: list[Line] = []
    # rows stand in the order of their catalogue, and so do its groups
    for group in dict.fromkeys(row.entry.group for row in rows):
        members = [row for row in rows if row.entry.group == group]
        if members:
            lines += [Line(group, heading=True), *_group(members, width)]
    gpus = [line for status, text in gpu_lines(facts) for line in _wrapped(text, status, width)]
    if gpus:
        lines += [Line("GPUs", heading=True), *gpus]
    attention = [row for row in rows if row.status in (Status.FAIL, Status.WARN)]
    if attention:
        # failures come last, where they are seen first
        attention.sort(key=lambda row: row.status is Status.FAIL)
        lines.append(Line("To do", heading=True))
        lines += [line for row in attention for line in _detail(row, width)]
    return tuple(lines)


def summary_line(facts: Facts) -> str:
    """The last line: `ok: 43 passed, 2 skipped in 6.1 s`."""
    words = {Status.PASS: "ok", Status.WARN: "ok, with warnings", Status.FAIL: "failed", Status.SKIP: "nothing tested"}
    counted = facts.totals
    if facts.stopped:
        return f"{facts.stopped} after {facts.elapsed_s:.1f} s: {counted.sentence()}, the rest was not checked"
    return f"{words[counted.status]}: {counted.sentence()} in {facts.elapsed_s:.1f} s"


def _group(rows: Sequence[Row], width: int) -> Iterator[Line]:
    """A line a check; those that were skipped on the same nodes for one reason share theirs."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        groups.setdefault((row.where, row.gist) if row.status is Status.SKIP else (number,), []).append(row)
    for members in groups.values():
        first = members[0]
        title = first.entry.title if len(members) == 1 else f"{len(members)} checks"
        head = _head(title, first.where, width)
        room = max(width - len(head) - len(INDENT), 10)
        if first.status is Status.SKIP:
            # the only place that says why: nothing of it is cut
            note, *more = textwrap.wrap(first.gist or first.measured, room, break_on_hyphens=False) or [""]
            yield Line((head + note).rstrip(), first.status)
            yield from (Line(f"{INDENT}{'':<{len(head)}}{line}") for line in more)
        else:
            note = first.measured if first.status is Status.PASS else first.gist or first.measured
            yield Line((head + shorten(note, room)).rstrip(), first.status)


def _head(title: str, where: str, width: int) -> str:
    room = WHERE_WIDTHS[width < NARROW]
    return f"{title:<{TITLE_WIDTH}} {shorten(where, room):<{room}} "


def _wrapped(text: str, status: Status, width: int) -> Iterator[Line]:
    first, *rest = textwrap.wrap(text, width - len(INDENT), break_on_hyphens=False)
    yield Line(first, status)
    yield from (Line(f"{INDENT}  {line}") for line in textwrap.wrap(" ".join(rest), width - len(INDENT) - 2))


def _detail(row: Row, width: int) -> Iterator[Line]:
    yield Line(f"{row.entry.title}: {shorten(row.where, width - 30)}", row.status)
    for text in _sentences(row):
        for line in textwrap.wrap(text, width - len(INDENT), break_long_words=False, break_on_hyphens=False):
            yield Line(INDENT + line)


def _sentences(row: Row) -> Sequence[str]:
    sentences = [row.message] if row.message else []
    if row.measured or row.expected:
        sentences.append(f"measured: {row.measured or 'nothing'}; expected: {row.expected or 'something else'}")
    return [*sentences, f"do: {row.advice}"]

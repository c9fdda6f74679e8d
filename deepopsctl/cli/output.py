"""Output of results and errors: for people on stderr, for programs on stdout."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from shlex import quote
from shutil import get_terminal_size
from typing import TextIO

import click

from deepopsctl.cli.options import DIRECTORY
from deepopsctl.errors import DeepOpsError, InputError, Problem
from deepopsctl.model.json_objects import SCHEMA, Answer, Fault, Refusal
from deepopsctl.text.printable import coloured, printable

# characters of a message: one of 60,000 pushes everything else away
_LONGEST = 4000
# of many similar problems
_FEW = 10
# a word with a digit or a dot in it: a line, an address, a node
_VARYING = re.compile(r"[^\s:;,]*[0-9.][^\s:;,]*")
# a command of ours that takes -C, as messages write it; and a page, which an installed package has elsewhere
_COMMAND = re.compile(r"(`|next: |, then )deepopsctl (?=[a-z])(?!init\b|lab\b|docs (?:show|schema)\b)")
_PAGE = re.compile(r"`?(?<![\w./-])docs/(?P<page>(?:[a-z0-9-]+/)*[a-z0-9-]+)\.md(?P<anchor>#[a-z0-9-]+)?`?")
# of a column that wraps; and where it may do so
_NARROWEST, _LONGEST_WORD = 12, 32
_PIECES = re.compile(r"[^\s,]*,?\s*")
# of a message; a command is one of them, in backticks or at the end
_WORDS = re.compile(r"[^\s`]*`[^`]*`[^\s`]*|deepopsctl .*$|\S+")
# what json.dumps lets pass, and a terminal obeys
_CONTROL = re.compile("[\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def emit_json(document: Answer | Refusal) -> None:
    """Print exactly one JSON object on stdout: one of model/json_objects.py."""
    _print(json_text(document))


def json_text(document: Answer | Refusal) -> str:
    """Its text, in which nothing is left that a terminal obeys."""
    text = json.dumps(document, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def errors_object(error: DeepOpsError) -> Refusal:
    """The JSON object of a refused command (DESIGN, section 5)."""
    if isinstance(error, InputError):
        return refusal_object((p.where, p.message, p.hint) for p in error.problems)
    return refusal_object([("", error.message, error.hint)])


def refusal_object(problems: Iterable[tuple[str, str, str]]) -> Refusal:
    """The same from (where, message, hint)."""
    errors: list[Fault] = [{"where": where, "message": message, "hint": hint} for where, message, hint in problems]
    return {"schema": SCHEMA, "ok": False, "errors": errors}


def show_error(error: DeepOpsError) -> None:
    """Print `error: ...` and `hint: ...` lines on stderr, every problem of an input."""
    if isinstance(error, InputError):
        for p in folded(error.problems):
            show_problem(f"{p.where}: {p.message}" if p.where else p.message, p.hint)
    else:
        show_problem(error.message, error.hint)


def folded(problems: Sequence[Problem]) -> Iterator[Problem]:
    """The first few of problems that differ only in numbers and names; the last one counts the rest."""
    counts = Counter(_pattern(problem) for problem in problems)
    seen: Counter[tuple[str, ...]] = Counter()
    for problem in problems:
        pattern = _pattern(problem)
        seen[pattern] += 1
        left = counts[pattern] - _FEW
        if seen[pattern] == _FEW and left > 0:
            yield replace(problem, message=f"{problem.message} (and {left} more like it: --json has all)")
        elif seen[pattern] <= _FEW:
            yield problem


def _pattern(problem: Problem) -> tuple[str, ...]:
    return tuple(_VARYING.sub("#", text) for text in (problem.where, problem.message, problem.hint))


def capped(text: str) -> str:
    """A text as a person can read it: the end of a long one, which has the reason. JSON has all."""
    more = len(text) - _LONGEST
    return f"... ({more:,} characters before: --json)\n{text[-_LONGEST:]}" if more > 0 else text


def show_problem(message: str, hint: str = "") -> None:
    """One `error:` line and its `hint:` line."""
    info(click.style("error: ", fg="red", bold=True) + printable(capped(message)))
    if hint:
        info(click.style("hint: ", fg="cyan") + printable(hint))


def show_warning(problem: Problem) -> None:
    """One `warning:` line for a probable mistake."""
    info(click.style("warning: ", fg="yellow") + printable(f"{problem.where}: {problem.message}; {problem.hint}"))


def pasteable(text: str) -> str:
    """A text whose commands can be pasted: with -C as it was typed, and pages by the command that shows them."""
    text = _PAGE.sub(lambda match: f"`deepopsctl docs show {match['page']}{match['anchor'] or ''}`", text)
    directory = DIRECTORY.get()
    return _COMMAND.sub(lambda match: f"{match[1]}deepopsctl -C {quote(directory)} ", text) if directory else text


def info(text: str) -> None:
    """Print a message for people, on stderr: its commands can be pasted, and a terminal breaks no word of it."""
    note(filled(pasteable(text), get_terminal_size((0, 0)).columns if sys.stderr.isatty() else 0))


def filled(text: str, width: int) -> str:
    """A text whose lines fit; commands stay whole, for a terminal joins what it broke itself. 0 leaves it as it is."""
    return "\n".join(_filled(line, width) if width else line for line in text.split("\n"))


def _filled(line: str, width: int) -> str:
    if len(click.unstyle(line)) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [""]
    for word in _WORDS.findall(line):
        longer = f"{lines[-1]} {word}" if lines[-1] else f"{indent}{'    ' if len(lines) > 1 else ''}{word}"
        if lines[-1] and len(click.unstyle(longer)) > width:
            lines.append(f"{indent}    {word}")
        else:
            lines[-1] = longer
    return "\n".join(lines)


def note(text: str) -> None:
    """Print a line on stderr as it is; a terminal that was closed does not keep a command from ending well."""
    try:
        click.echo(coloured(text), err=True, color=color())
    except OSError:
        discard(sys.stderr)


def show(text: str) -> None:
    """Print a line of data, on stdout, as it is."""
    _print(coloured(text))


def discard(stream: TextIO) -> None:
    """Send what else is written to a stream that is not read any more to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print(text: str) -> None:
    try:
        click.echo(text, color=color())
    except BrokenPipeError:
        # `deepopsctl status | head`: the exit code is that of the whole command
        discard(sys.stdout)


def color() -> bool | None:
    """False under NO_COLOR (https://no-color.org); None leaves it to click: colour on a terminal only."""
    return False if os.environ.get("NO_COLOR") else None


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[int] = (),
    width: int | None = None,
    indent: int = 0,
) -> list[str]:
    """Aligned columns; those in `right` hold numbers. In a terminal, the widest of the others wrap to its width.

    `indent` is what the caller puts before each line.
    """
    lines = [list(header), *(list(row) for row in rows)]
    numbers = frozenset(right)
    # 0 where the output goes into a pipe or a file: a row is a line there
    room = get_terminal_size((0, 0)).columns if width is None else width
    widths = _widths(lines, numbers, max(room - indent, 0))
    return [
        "  ".join(
            cell.rjust(size) if column in numbers else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for line in lines
        for cells in zip_longest(*map(_wrapped, line, widths), fillvalue="")
    ]


def _widths(lines: Sequence[Sequence[str]], numbers: Collection[int], room: int) -> list[int]:
    """Of each column what its cells need, or what the widest ones may have in this room: words stay whole."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = [
        max(len(word.rstrip()) for cell in column for word in _PIECES.findall(cell))
        for column in zip(*lines, strict=True)
    ]
    least = [min(max(_NARROWEST, longest), _LONGEST_WORD) for longest in words]
    while room and sum(widths) + 2 * (len(widths) - 1) > room:
        wraps = [each for each, width in enumerate(widths) if each not in numbers and width > least[each]]
        if not wraps:
            break
        widest = max(wraps, key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _wrapped(cell: str, width: int) -> list[str]:
    """A cell in lines: broken at spaces and after commas, in a longer word where it has to be."""
    lines = [""]
    for piece in _PIECES.findall(cell):
        text = piece
        if len(lines[-1]) + len(text.rstrip()) > width and lines[-1].strip():
            lines.append("")
        while len(text.rstrip()) > width:
            lines[-1:] = [text[:width], ""]
            text = text[width:]
        lines[-1] += text
    return [line.rstrip() for line in lines]

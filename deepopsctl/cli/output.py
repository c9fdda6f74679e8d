"""Output of results and errors: for people on stderr, for programs on stdout."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from shlex import quote
from typing import TextIO

import click

from deepopsctl.cli.options import DIRECTORY
from deepopsctl.errors import DeepOpsError, InputError, Problem
from deepopsctl.model.json_objects import SCHEMA, Answer, Fault, Refusal
from deepopsctl.text.printable import coloured, printable

# of many similar problems
_FEW = 10
# a word with a digit or a dot in it: a line, an address, a node
_VARYING = re.compile(r"[^\s:;,]*[0-9.][^\s:;,]*")
# a command of ours that takes -C, as messages write it; and a page, which an installed package has elsewhere
_COMMAND = re.compile(r"(`|next: )deepopsctl (?=[a-z])(?!init\b|lab\b|docs (?:show|schema)\b)")
_PAGE = re.compile(r"`?(?<![\w./-])docs/(?P<page>(?:[a-z0-9-]+/)*[a-z0-9-]+)\.md(?P<anchor>#[a-z0-9-]+)?`?")
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


def show_problem(message: str, hint: str = "") -> None:
    """One `error:` line and its `hint:` line."""
    info(click.style("error: ", fg="red", bold=True) + printable(message))
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
    """Print a line for people, on stderr; a terminal that was closed does not keep a command from ending well."""
    try:
        click.echo(coloured(pasteable(text)), err=True, color=color())
    except OSError:
        discard(sys.stderr)


def show(text: str) -> None:
    """Print a line of data, on stdout."""
    _print(coloured(pasteable(text)))


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


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Aligned columns; those in `right` hold numbers."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    numbers = frozenset(right)
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]

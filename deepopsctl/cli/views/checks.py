"""Checks on the terminal: the table, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from deepopsctl.cli.output import info

if TYPE_CHECKING:
    from deepopsctl.report.model import Facts

_COLOURS = {"fail": "red", "warn": "yellow", "skip": "bright_black", "pass": "green"}


def show_checks(facts: Facts) -> None:
    """Print them, as wide as the terminal is."""
    for line in check_lines(facts):
        info(line)


def check_lines(facts: Facts) -> Iterator[str]:
    """The lines, in colour."""
    from shutil import get_terminal_size

    from deepopsctl.report.table import summary_line, table

    for line in table(facts, max(get_terminal_size((110, 24)).columns, 60)):
        if line.heading:
            yield ""
            yield click.style(line.text, bold=True)
        elif line.status:
            yield f"  {click.style(f'{line.status:<4}', fg=_COLOURS[line.status])}  {line.text}"
        else:
            yield line.text
    yield ""
    counted = "fail" if facts.stopped else facts.totals.status
    yield click.style(summary_line(facts), fg=_COLOURS[counted], bold=True)

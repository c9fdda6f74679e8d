"""Checks on the terminal: the table, then the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deepopsctl.cli.output import say

if TYPE_CHECKING:
    from deepopsctl.report.facts import Facts

_COLOURS = {"fail": "red", "warn": "yellow", "skip": "bright_black", "pass": "green"}


def show_checks(facts: Facts) -> None:
    """Print them, as wide as the terminal is."""
    from shutil import get_terminal_size

    from deepopsctl.report.table import table, verdict

    for line in table(facts, max(get_terminal_size((110, 24)).columns, 60)):
        if line.heading:
            say("")
            say(click.style(line.text, bold=True))
        elif line.status:
            say(f"  {click.style(f'{line.status:<4}', fg=_COLOURS[line.status])}  {line.text}")
        else:
            say(line.text)
    say("")
    counted = facts.totals.status
    say(click.style(verdict(facts), fg=_COLOURS[counted], bold=True))

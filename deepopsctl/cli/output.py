"""How results and errors reach a person (stderr) or a program (stdout)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from deepopsctl.errors import DeepOpsError, InputError

SCHEMA = 1


def emit_json(document: Mapping[str, object]) -> None:
    """Print exactly one JSON object on stdout."""
    click.echo(json.dumps(document, ensure_ascii=False))


def errors_object(error: DeepOpsError) -> dict[str, object]:
    """The JSON object of a refused command (DESIGN, section 5)."""
    if isinstance(error, InputError):
        found = [{"where": p.where, "message": p.message, "hint": p.hint} for p in error.problems]
    else:
        found = [{"where": "", "message": error.message, "hint": error.hint}]
    return {"schema": SCHEMA, "ok": False, "errors": found}


def show_error(error: DeepOpsError) -> None:
    """Print `error: ...` and `hint: ...` lines on stderr, every problem of an input."""
    if isinstance(error, InputError):
        pairs = [(f"{p.where}: {p.message}" if p.where else p.message, p.hint) for p in error.problems]
    else:
        pairs = [(error.message, error.hint)]
    for message, hint in pairs:
        click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
        if hint:
            click.echo(click.style("hint: ", fg="cyan") + hint, err=True)


def say(text: str) -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True)

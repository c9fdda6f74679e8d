"""-C and -v before a command or after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click


def accept_after_subcommand(command: click.Command) -> click.Command:
    """Let a command, and those below it, take -C and -v as well, unless it has such an option of its own."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            command.commands[name] = accept_after_subcommand(child)
    own_options = {word for parameter in command.params for word in parameter.opts}
    for option in _options():
        if not own_options & set(option.opts):
            command.params.append(option)
    return command


def _options() -> tuple[click.Option, ...]:
    return (
        click.Option(
            ["-C", "--directory"],
            type=click.Path(path_type=Path),
            expose_value=False,
            hidden=True,
            allow_from_autoenv=False,
            callback=_set_directory,
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            hidden=True,
            allow_from_autoenv=False,
            callback=_add_verbosity,
        ),
    )


def _set_directory(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    del parameter
    if value is not None:
        ctx.obj = replace(ctx.obj, directory=value)


def _add_verbosity(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    del parameter
    if value:
        ctx.obj = replace(ctx.obj, verbosity=ctx.obj.verbosity + value)

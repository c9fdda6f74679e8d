"""`deepopsctl completion`: what a shell needs to complete commands, options, nodes and runs by the Tab key."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from deepopsctl.cli.output import show

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: bash, zsh or fish.

    For bash: `deepopsctl completion bash >~/.local/share/bash-completion/completions/deepopsctl`.
    """
    from deepopsctl.cli.main import PREFIX, cli

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has all three
    show(made(cli, {}, "deepopsctl", f"_{PREFIX}_COMPLETE").source())

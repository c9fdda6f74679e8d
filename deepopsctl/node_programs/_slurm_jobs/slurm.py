"""Ask Slurm's commands, whatever the user's own settings of them are."""

from __future__ import annotations

from collections.abc import Sequence

from .._shared import command, slurm_client


def ask(argv: Sequence[str], limit_s: float = 15, stdin: str = "", **environment: str) -> command.Result:
    """Run one of Slurm's commands, with more variables in its environment; a suite has less patience than a deploy."""
    return slurm_client.ask(argv, limit_s, stdin, command.slurm_environment(**environment))

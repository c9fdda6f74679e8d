"""Slurm's commands: a time limit for each, and records whose separators no user can forge."""

from __future__ import annotations

import secrets
from typing import Dict, List, Sequence, Tuple

from .._shared import command
from . import records


class AskingError(Exception):
    """A command failed, took too long or printed too much: one sentence."""


def ask(query: Sequence[str], limit_s: float) -> str:
    """Output of a command; it and its children have ended when this returns."""
    argv, environment, mark = marked(query)
    result = command.run(argv, limit_s, env={**_environment(), **environment})
    if not result.ok:
        raise AskingError(result.failure)
    return records.unmarked(result.output, mark)


def marked(query: Sequence[str]) -> Tuple[List[str], Dict[str, str], str]:
    """The arguments, environment and mark of a question for records.

    Without AccountingStorageEnforce an account is whatever a user typed, separators too: with a mark behind them that
    others can't forge them. squeue gets it from the environment, as arguments are readable by all users; in its
    sinfo prints nothing is a user's.
    """
    mark = secrets.token_hex(8)
    argv = [
        word.replace(records.FIELD, records.FIELD + mark).replace(records.RECORD, records.RECORD + mark)
        for word in query
    ]
    if argv[0] != "squeue" or "-O" not in argv:
        return argv, {}, mark if argv != list(query) else ""
    place = argv.index("-O")
    return argv[:place] + argv[place + 2 :], {"SQUEUE_FORMAT2": argv[place + 1]}, mark


def _environment() -> Dict[str, str]:
    """None of a site's SQUEUE_FORMAT or SINFO_ALL; times as seconds since 1970, and arrays with all their tasks."""
    return {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
    }

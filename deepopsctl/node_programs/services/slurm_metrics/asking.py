"""Slurm's commands: a time limit for each, and records whose separators no user can forge.

squeue and sinfo print tables for `-O FIELD:.0SEPARATOR,...`: whole fields, and ends that no text has. Reasons and
accounts are user input with arbitrary characters: the real separators are marked.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from ..._shared import slurm_client

# ASCII's own: unit separator, record separator
FIELD, RECORD = "\x1f", "\x1e"


class AskingError(Exception):
    """A command failed, took too long or printed too much: one sentence."""


def ask(query: Sequence[str], limit_s: float) -> str:
    """Output of a command; it and its children have ended when this returns."""
    argv, environment, mark = marked(query)
    result = slurm_client.ask(argv, limit_s, env={**_environment(), **environment})
    if not result.ok:
        raise AskingError(result.failure)
    return unmarked(result.output, mark)


def marked(query: Sequence[str]) -> tuple[list[str], dict[str, str], str]:
    """The arguments, environment and mark of a question for records.

    Without AccountingStorageEnforce an account is whatever a user typed, separators too: with a mark behind them that
    others can't forge them. squeue gets it from the environment, as arguments are readable by all users; in its
    sinfo prints nothing is a user's.
    """
    mark = secrets.token_hex(8)
    argv = [word.replace(FIELD, FIELD + mark).replace(RECORD, RECORD + mark) for word in query]
    if argv[0] != slurm_client.SQUEUE or "-O" not in argv:
        return argv, {}, mark if argv != list(query) else ""
    place = argv.index("-O")
    return argv[:place] + argv[place + 2 :], {"SQUEUE_FORMAT2": argv[place + 1]}, mark


def _environment() -> dict[str, str]:
    """None of a site's SQUEUE_FORMAT or SINFO_ALL; times as seconds since 1970, and arrays with all their tasks."""
    return {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
    }


def layout(fields: Sequence[str]) -> str:
    """The argument of -O. `.0` sets an unlimited width: without it, texts are cut."""
    return "".join(f"{name}:.0{FIELD}," for name in fields[:-1]) + f"{fields[-1]}:.0{RECORD}"


def unmarked(text: str, mark: str) -> str:
    """The text with those separators alone that have the mark behind them, and without it."""
    foreign = re.sub(f"[{FIELD}{RECORD}](?!{mark})", "?", text) if mark else text
    return foreign.replace(mark, "") if mark else text


def rows(text: str, fields: int) -> tuple[list[list[str]], int]:
    """The records, and how many there were that can't be read: a text in them must have had a separator in it."""
    records = [each.lstrip("\n").split(FIELD) for each in text.split(RECORD)]
    if records[-1] == [""]:
        records.pop()
    whole = [[word.strip() for word in record] for record in records if len(record) == fields]
    return whole, len(records) - len(whole)

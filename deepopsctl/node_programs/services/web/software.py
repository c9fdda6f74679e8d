"""What the commands of login nodes say of space and wheels, and examples of jobs: no file system is searched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

from ..._shared.command import Result
from ..._shared.slurm_output import clean
from ...commands.user_commands.avail_wheels import INVALID
from .offer import RefusedError

Ask = Callable[..., Result]
SPACE, WHEELS = "/usr/local/bin/diskusage_report", "/usr/local/bin/avail_wheels"
LIMIT_S = 30
MOST_WHEELS, MOST_EXAMPLES, LARGEST = 300, 60, 32768
_COLUMNS = ("name", "version", "python", "arch")
_WANTED = re.compile(r"[A-Za-z0-9._-]{0,60}")
_KINDS = (".sh", ".py")


def space(ask: Ask) -> dict[str, Any]:
    """The rows of `diskusage_report`; file systems that do not answer are among them."""
    result = ask([SPACE, "--json"], LIMIT_S)
    try:
        rows: list[dict[str, Any]] = json.loads(result.output)["rows"]
    except (ValueError, KeyError, TypeError):
        return {"trouble": _trouble(result, "No file systems with limits are known here"), "rows": []}
    return {"rows": rows}


def wheels(ask: Ask, wanted: str) -> dict[str, Any]:
    """Wheels in whose names the text is, each in its latest version, for any Python."""
    if not _WANTED.fullmatch(wanted):
        raise RefusedError("names of packages have letters, digits, dots and dashes")
    words = [f"--name=*{wanted}*"] if wanted else []
    result = ask([WHEELS, "--raw", "--all_pythons", *words, "--column", *_COLUMNS], LIMIT_S)
    if result.status == INVALID:
        return {"wheels": None, "more": False}
    lines = [line.split(" ") for line in clean_lines(result.output)]
    matching = [dict(zip(_COLUMNS, words)) for words in lines if len(words) == len(_COLUMNS)]
    return {"wheels": matching[:MOST_WHEELS], "more": len(matching) > MOST_WHEELS}


def clean_lines(text: str) -> list[str]:
    """Names of files are whatever who has put them there liked."""
    return [clean(line, 300) for line in text.splitlines()]


def examples(directory: str) -> list[dict[str, str]]:
    """The jobs to start from that deploy has installed, with their texts."""
    made: list[dict[str, str]] = []
    for place in (directory, *_below(directory)):
        for name in _names(place):
            path = os.path.join(place, name)
            if name.endswith(_KINDS) and len(made) < MOST_EXAMPLES:
                text = _text(path)
                made.append(
                    {"name": os.path.relpath(path, directory), "path": path, "about": _about(text), "text": text}
                )
    return [each for each in made if each["text"]]


def _below(directory: str) -> list[str]:
    paths = [os.path.join(directory, name) for name in _names(directory)]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(LARGEST)
    except OSError:
        return ""


def _about(text: str) -> str:
    """The first comment, or the first sentence of a Python program."""
    for line in text.splitlines()[:5]:
        if line.startswith("# "):
            return line[2:]
        if line.startswith('"""'):
            return line.strip('"')
    return ""


def _trouble(result: Result, otherwise: str) -> str:
    return otherwise if result.status in (0, 3, 127) else clean(result.failure.replace("error: ", ""), 300)

"""slurm.conf and gres.conf as lines of KEY=VALUE pairs, the way Slurm's own parser reads them.

Continued lines, comments, Include and keys in any case, after slurm.conf(5); values keep their spelling, quotes go.
Not by slurmutils: it reads none of our 30 samples (keys and spellings that it does not know, continued lines).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.text.node_sets import shorten, wider
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import is_alongside, read_source

MAX_INCLUDES = 100

_PAIR = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*\+?=\s*(?:\"([^\"]*)\"|(\S*))(?=\s|$)")
_INCLUDE = re.compile(r"\s*include\s+(\S.*?)\s*", re.IGNORECASE)
_HOSTLISTS = frozenset({"nodename", "nodehostname", "nodeaddr", "nodes"})
_PADDED = re.compile(r"(?<=[\[,])(0[0-9]{0,14})-([0-9]{1,15})(?=[\],])")
# `\#` is a number sign in a value
_COMMENT = re.compile(r"(?<!\\)#.*")


@dataclass(frozen=True, slots=True)
class Pair:
    """One KEY=VALUE as written, without quotes."""

    key: str
    value: str

    @property
    def name(self) -> str:
        """The key as Slurm compares it."""
        return self.key.lower()


@dataclass(frozen=True, slots=True)
class Line:
    """The pairs of one logical line, and its location."""

    where: str
    pairs: tuple[Pair, ...]

    def get(self, name: str, instead: str = "") -> str:
        """The value of a key (in lower case); the last one of duplicates."""
        return next((pair.value for pair in reversed(self.pairs) if pair.name == name), instead)


def read_lines(text: str, source: str, directory: Path | None, problems: Problems) -> Iterator[Line]:
    """The lines of a file and its includes; unreadable lines and files are problems, the others are read."""
    return _Reading(problems, directory).lines(text, source)


def template_line(text: str) -> int:
    """The number of the first line of a Jinja template that another tool fills in; 0 where there is none."""
    return next((number for number, content in _logical_lines(text) if "{{ " in content or "{%" in content), 0)


class _Reading:
    """Reads files with a limit on includes, because they may form a cycle."""

    def __init__(self, problems: Problems, directory: Path | None) -> None:
        self.problems = problems
        self.directory = directory
        self.named = (directory or Path()) / "slurm.conf"
        self.included = 0

    def lines(self, text: str, source: str) -> Iterator[Line]:
        for number, content in _logical_lines(text):
            where = f"{source}:{number}"
            included = _INCLUDE.fullmatch(content)
            if included:
                yield from self._include(included[1].strip('"'), where)
                continue
            try:
                pairs = _pairs(content)
            except RefusedError as refusal:
                self.problems.refuse(where, "", refusal)
            else:
                yield Line(where, pairs)

    def _include(self, name: str, where: str) -> Iterator[Line]:
        if self.directory is None:
            self.problems.add(
                where, f"Include {shorten(name)}: standard input has no directory", "give the file itself"
            )
            return
        path = Path(name) if name.startswith("/") else self.directory / name
        # a copied slurm.conf names files of its original host
        alongside = self.directory / path.name
        places = [_matching(path), _matching(alongside)]
        files = next(filter(None, ([file for file in each if is_alongside(file, self.named)] for each in places)), [])
        if not files:
            hint = f"copy it next to {where.rpartition(':')[0]}, or remove the line"
            what = f"it is not below {self.directory}" if any(places) else "there is no such file"
            self.problems.add(where, f"Include {shorten(name)}: {what}", hint)
        for file in files:
            self.included += 1
            if self.included > MAX_INCLUDES:
                self.problems.add(where, f"more than {MAX_INCLUDES} files are included", "do they include each other?")
                return
            text = read_source(file, str(file), self.problems)
            if text is not None:
                yield from self.lines(text, str(file))


def _matching(path: Path) -> list[Path]:
    if not any(marker in path.name for marker in "*?["):
        return [path] if path.is_file() else []
    try:
        return sorted(candidate for candidate in path.parent.glob(path.name) if candidate.is_file())
    except (OSError, ValueError):
        return []


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and contents, continued lines joined, comments and empty lines left out."""
    start, joined = 0, ""
    for number, raw in enumerate(text.split("\n"), start=1):
        line = _COMMENT.sub("", raw).rstrip()
        start = start or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        content = (joined + line).replace("\\#", "#").strip()
        if content:
            yield start, content
        start, joined = 0, ""
    if joined.strip():
        yield start, joined.strip()


def _range(match: re.Match[str]) -> str:
    """A range as Slurm reads it: the first number says how wide all are, so [08-100] is [08-99,100-100]."""
    first, last = match[1], match[2]
    if len(last) > len(first) > 1:
        return wider(first, last)
    return f"{first}-{last.zfill(len(first))}"


def _pairs(content: str) -> tuple[Pair, ...]:
    pairs, position = [], 0
    while position < len(content):
        match = _PAIR.match(content, position)
        if not match:
            rest = content[position:].strip()
            raise RefusedError(f"{shorten(rest)!r} is not a KEY=VALUE", "compare the line with slurm.conf(5)")
        value = match[3] if match[2] is None else match[2]
        pairs.append(Pair(match[1], _PADDED.sub(_range, value) if match[1].lower() in _HOSTLISTS else value))
        position = match.end()
        while position < len(content) and content[position].isspace():
            position += 1
    return tuple(pairs)

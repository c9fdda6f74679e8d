"""Ansible's host ranges (`gpu[01:16]`) and host patterns (`slurm-master[0]`, `all:!slurm-node`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product

from deepopsctl.text.node_sets import MAX_EXPRESSION, shorten
from deepopsctl.text.problems import RefusedError

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"([0-9]{1,9}):([0-9]{1,9})(?::([0-9]{1,6}))?")
_LETTERS = re.compile(r"([a-z]):([a-z])(?::([0-9]{1,2}))?|([A-Z]):([A-Z])(?::([0-9]{1,2}))?")
_SUBSCRIPT = re.compile(r"(.+)\[(-?[0-9]{0,6})(:)?(-?[0-9]{0,6})\]")


def expand_hosts(text: str) -> list[str]:
    """Every host of an inventory line: `gpu[01:16]`, `rack[a:c]n[1:9:2]`."""
    pieces = _RANGE.split(text)
    columns = [_values(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    size = 1
    for column in columns:
        size *= len(column)
    if size > MAX_EXPRESSION:
        raise RefusedError(f"{shorten(text)} stands for {size:,} hosts", "check the ends of the range")
    return ["".join(parts) for parts in product(*columns)]


def _values(body: str, text: str) -> list[str]:
    numbers, letters = _NUMBERS.fullmatch(body), _LETTERS.fullmatch(body)
    if numbers:
        first, last, step = numbers[1], numbers[2], int(numbers[3] or 1)
        width = len(first) if first.startswith("0") else 0
        if width and len(first) != len(last):
            raise RefusedError(f"{shorten(text)}: the ends of [{body}] differ in length", "write both with all digits")
        sequence = range(int(first), int(last) + 1, step) if step else range(0)
        if 0 < len(sequence) <= MAX_EXPRESSION:
            return [f"{number:0{width}d}" if width else str(number) for number in sequence]
    elif letters:
        first, last, step = letters[1] or letters[4], letters[2] or letters[5], int(letters[3] or letters[6] or 1)
        if step and first <= last:
            return [chr(code) for code in range(ord(first), ord(last) + 1, step)]
    raise RefusedError(f"{shorten(text)}: [{shorten(body)}] is no range", "Ansible's ranges are [01:16] and [a:f]")


def match_hosts(pattern: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    """The hosts of a pattern such as `slurm-master[1:],slurm-node`; unknown names give none."""
    matches: list[str] = []
    for part in re.split(r"[,:](?![^\[]*\])", pattern):
        word = part.strip()
        mine = _match_one(word.lstrip("!&"), groups, hosts)
        if word.startswith("!"):
            matches = [host for host in matches if host not in mine]
        elif word.startswith("&"):
            matches = [host for host in matches if host in mine]
        else:
            matches += mine
    return list(dict.fromkeys(matches))


def _match_one(word: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    subscript = _SUBSCRIPT.fullmatch(word)
    if subscript:
        listed = _named(subscript[1], groups, hosts)
        first, colon, last = subscript[2], subscript[3], subscript[4]
        if colon:
            # Ansible includes the end
            end = None if last in ("", "-1") else int(last) + 1
            return listed[int(first or 0) if first != "-" else 0 : end] if last != "-" else []
        index = int(first) if first not in ("", "-") else 0
        return listed[index : index + 1 or None]
    return _named(word, groups, hosts)


def _named(word: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    if word in ("all", "*"):
        return list(hosts)
    if word in groups:
        return list(groups[word])
    return [host for host in hosts if fnmatchcase(host, word)] if word else []

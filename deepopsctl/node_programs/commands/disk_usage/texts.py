"""What quota tools print, read: `quota`, `lfs quota`, `beegfs-ctl --getquota`, `beegfs quota list-usage`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Callable

from .rows import Amount, Usage

_KIB = 1024
# BeeGFS' words for no limit
_UNLIMITED = ("unlimited", "∞", "-", "")
_NO_LIMIT = 2**63 - 1


class UnreadableError(ValueError):
    """The output is not what the tool is known to print."""


def read_quota(text: str) -> Usage | None:
    """`quota --raw-grace --no-wrap` of one file system: kibibytes, and the end of a grace in seconds since 1970.

    None where it prints no line of numbers: it knows of no quota there.
    """
    for words in _lines_of_numbers(text):
        if len(words) >= 9:
            return _from_columns(words[-8:], int)
    return None


def read_lfs(text: str, now: int) -> Usage:
    """`lfs quota` of one user or project: kibibytes, and a grace as `6d23h59m58s`."""
    # a long name of the file system stands on a line of its own
    words = " ".join(text.split("\n")).split()
    for start in range(len(words) - 7):
        if all(re.fullmatch(r"\[?\d+\]?\*?|-|none|expired|(\d+[wdhms])+", word) for word in words[start : start + 8]):
            return _from_columns(words[start : start + 8], lambda grace: _lfs_grace(grace, now))
    raise UnreadableError(_shown(text))


def _lines_of_numbers(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 9 and all(re.fullmatch(r"\d+\*?", word) for word in words[-8:]):
            yield words


def _from_columns(words: list[str], grace: Callable[[str], int | None]) -> Usage:
    """Eight columns: used, quota, limit, grace; for space in KiB, then for files."""
    numbers = [int(word.strip("[]*")) if word.strip("[]*").isdigit() else 0 for word in words]
    ends = [end for end in (grace(words[3]), grace(words[7])) if end]
    return Usage(
        Amount(numbers[0] * _KIB, numbers[1] * _KIB or None, numbers[2] * _KIB or None),
        Amount(numbers[4], numbers[5] or None, numbers[6] or None),
        min(ends) if ends else None,
    )


def _lfs_grace(text: str, now: int) -> int | None:
    if text in ("-", "none", "0"):
        return None
    seconds = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
    return now + sum(int(number) * seconds[unit] for number, unit in re.findall(r"(\d+)([wdhms])", text))


def read_beegfs_ctl(text: str) -> Usage:
    """`beegfs-ctl --getquota --csv` (BeeGFS 7): name,id,size,hard,files,hard; bytes."""
    for line in text.splitlines():
        words = line.strip().split(",")
        if len(words) == 6 and words[1].isdigit():
            return Usage(
                Amount(int(words[2]), None, _beegfs_limit(words[3])),
                Amount(int(words[4]), None, _beegfs_limit(words[5])),
            )
    raise UnreadableError(_shown(text))


def read_beegfs(text: str) -> Usage:
    """`beegfs quota list-usage --raw --output ndjson` (BeeGFS 8): an object a storage pool, `USED/LIMIT` each.

    With several pools their use is added up, and so are limits where all have one.
    """
    pools = [_beegfs_pool(entry) for entry in _objects(text) if entry.get("type") == "user"]
    if not pools:
        raise UnreadableError(_shown(text))
    return Usage(_sum([space for space, _ in pools]), _sum([files for _, files in pools]))


def _objects(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UnreadableError(_shown(line)) from error


def _beegfs_pool(entry: dict[str, str]) -> tuple[Amount, Amount]:
    return _beegfs_amount(entry.get("space", "?/?")), _beegfs_amount(entry.get("inode", "?/?"))


def _beegfs_amount(text: str) -> Amount:
    used, _, limit = str(text).partition("/")
    return Amount(int(used) if used.isdigit() else None, None, _beegfs_limit(limit))


def _beegfs_limit(text: str) -> int | None:
    if text in _UNLIMITED or not text.isdigit() or int(text) in (0, _NO_LIMIT):
        return None
    return int(text)


def _sum(amounts: list[Amount]) -> Amount:
    used = [amount.used for amount in amounts if amount.used is not None]
    limits = [amount.hard for amount in amounts if amount.hard is not None]
    return Amount(sum(used) if used else None, None, sum(limits) if len(limits) == len(amounts) else None)


def _shown(text: str) -> str:
    return f"no numbers in: {' '.join(text.split())[:200] or 'nothing'}"

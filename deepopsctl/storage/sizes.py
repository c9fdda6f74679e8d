"""Sizes, numbers of files and times as people write them."""

from __future__ import annotations

import re

from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError

KIB = 1024
_SIZE = re.compile(r"([1-9][0-9]{0,5})([KMGTP])(?:i?B)?")
_COUNT = re.compile(r"([1-9][0-9]{0,11})([kM]?)")
_TIME = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_SIZES = {"K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4, "P": KIB**5}
_COUNTS = {"": 1, "k": 1000, "M": 1_000_000}
_TIMES = {"h": 3600, "d": 86400, "w": 7 * 86400}


def parse_size(text: str) -> int:
    """`50G` -> bytes, by powers of 1024 as quota tools count."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise RefusedError(f"{shorten(text)!r} is no size", "write 500M, 50G or 2T")
    return int(found[1]) * _SIZES[found[2]]


def parse_count(text: str) -> int:
    """`500k` -> 500000."""
    found = _COUNT.fullmatch(text)
    if not found:
        raise RefusedError(f"{shorten(text)!r} is no number of files", "write 100000, 500k or 2M")
    return int(found[1]) * _COUNTS[found[2]]


def parse_time(text: str) -> int:
    """`60d` -> seconds."""
    found = _TIME.fullmatch(text)
    if not found:
        raise RefusedError(f"{shorten(text)!r} is no time", "write 12h, 60d or 8w")
    return int(found[1]) * _TIMES[found[2]]

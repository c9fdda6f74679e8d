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
    match = _SIZE.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is no size", "write 500M, 50G or 2T")
    return int(match[1]) * _SIZES[match[2]]


def parse_count(text: str) -> int:
    """`500k` -> 500000."""
    match = _COUNT.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is no number of files", "write 100000, 500k or 2M")
    return int(match[1]) * _COUNTS[match[2]]


def parse_time(text: str) -> int:
    """`60d` -> seconds."""
    match = _TIME.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is no time", "write 12h, 60d or 8w")
    return int(match[1]) * _TIMES[match[2]]

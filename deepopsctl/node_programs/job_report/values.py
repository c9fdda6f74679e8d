"""Numbers as Slurm writes them, and as people read them."""

from __future__ import annotations

import re
from typing import Dict, Optional

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTP]?)i?B?")
_TIME = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2}(?:\.[0-9]{1,9})?)")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(text: str) -> Optional[int]:
    """`12`; None for all else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def size(text: str) -> Optional[int]:
    """`12K`, `3.5G` in bytes."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def seconds(text: str) -> Optional[float]:
    """`1-02:03:04`, `02:03.456` in seconds."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    days, hours, minutes = (int(match[place] or 0) for place in (1, 2, 3))
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])


def pairs(text: str) -> Dict[str, str]:
    """`cpu=4,mem=8G,gres/gpu=1`."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def clean(text: str, longest: int = 200) -> str:
    """User-supplied text without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])


def format_size(value: float) -> str:
    """`512 B`, `3.1 GiB`, `128 GiB`."""
    unit = 0
    while value >= 1023.5 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return "{} {}".format(_short(value), _BINARY[unit])


def format_count(value: float) -> str:
    """`0.03`, `2.1`, `32`."""
    return "{:.2f}".format(value) if 0 < value < 0.1 else _short(value)


def _short(value: float) -> str:
    return "{:.0f}".format(value) if value >= 100 or value == int(value) else "{:.1f}".format(value)


def format_time(value: float) -> str:
    """`45s`, `12m 03s`, `2h 05m`, `3d 04h`."""
    rest = int(value)
    if rest < 60:
        return "{}s".format(rest)
    if rest < 3600:
        return "{}m {:02}s".format(rest // 60, rest % 60)
    if rest < 86400:
        return "{}h {:02}m".format(rest // 3600, rest % 3600 // 60)
    return "{}d {:02}h".format(rest // 86400, rest % 86400 // 3600)


def format_share(used: float, asked: float) -> str:
    """`7 %`; a small share is `<1 %`, not 0 %."""
    share = 100 * used / asked
    return "<1 %" if 0 < share < 0.5 else "{:.0f} %".format(share)

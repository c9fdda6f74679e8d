"""What an explanation has: causes in plain words, and what to do, with the command to paste."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from ..._shared.values import format_time


class Advice(NamedTuple):
    """What to do; `start` and `gain_s` where Slurm was asked when the job would start then."""

    text: str
    command: str = ""
    start: int | None = None
    gain_s: int | None = None


@dataclass
class Cause:
    """One reason: `key` is for programs, and does not change."""

    key: str
    text: str
    details: list[str] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)


def moment(seconds: float) -> str:
    """`14:05` of today, else `Mon 30 Nov 14:05`, in the user's time zone."""
    then, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%a %d %b %H:%M", then)


def until(seconds: int | None, now: float) -> str:
    """`until 14:05 at the latest (in 20m 00s)`."""
    if seconds is None:
        return "without a time limit"
    return f"until {moment(seconds)} at the latest" + (f" (in {format_time(seconds - now)})" if seconds > now else "")


def several(names: list[str], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def count(number: int, what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"

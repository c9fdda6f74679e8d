"""How fast an upgrade goes: how many nodes at a time, how many may fail, and at what hours. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from deepopsctl.errors import DeepOpsError
from deepopsctl.text.node_sets import fold

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EXAMPLE = 'for example "Sat 02:00-06:00", "Mon-Fri 22:00-05:00" or "01:00-04:00" for every day'
_TIMES = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """Hours in which new nodes are taken out of service; `days` (0 is Monday) are those on which they begin.

    It is local time, without a zone: that of the control machine. One that ends before it begins ends the next day.
    """

    text: str
    days: tuple[int, ...]
    start: time
    end: time

    def is_open(self, now: datetime) -> bool:
        """Whether nodes may be taken out now."""
        return any(begin <= now < end for begin, end in self._periods(now, first=-1))

    def next_opening(self, now: datetime) -> datetime:
        """When it opens again."""
        return min(begin for begin, _ in self._periods(now, first=0) if begin > now)

    def _periods(self, now: datetime, first: int) -> Iterator[tuple[datetime, datetime]]:
        for offset in range(first, 8):
            day = now.date() + timedelta(days=offset)
            if day.weekday() in self.days:
                last = day if self.start < self.end else day + timedelta(days=1)
                yield datetime.combine(day, self.start), datetime.combine(last, self.end)


def parse_window(text: str) -> Window:
    """A window as people write it: `Sat 02:00-06:00`, `Sat,Sun 02:00-06:00`, `Mon-Fri 22:00-05:00`, `01:00-04:00`."""
    words = text.split()
    times = _TIMES.fullmatch(words[-1]) if 1 <= len(words) <= 2 else None
    if times is None:
        raise DeepOpsError(f"--window {text!r}: that is not a valid day and hours", _EXAMPLE)
    start, end = (time(int(times[n]), int(times[n + 1])) for n in (1, 3))
    if start == end:
        raise DeepOpsError(f"--window {text!r}: it ends when it begins", _EXAMPLE)
    return Window(" ".join(words), _days(words[0], text) if len(words) == 2 else tuple(range(7)), start, end)


def _days(listed: str, text: str) -> tuple[int, ...]:
    days: set[int] = set()
    for part in listed.split(","):
        ends = [DAYS.index(name.capitalize()) for name in part.split("-") if name.capitalize() in DAYS]
        if len(ends) != part.count("-") + 1 or len(ends) > 2:
            raise DeepOpsError(f"--window {text!r}: {part!r} is not a valid day; days are {', '.join(DAYS)}", _EXAMPLE)
        first, last = ends[0], ends[-1]
        days |= {number % 7 for number in range(first, last + 1 if last >= first else last + 8)}
    return tuple(sorted(days))


@dataclass(frozen=True, slots=True)
class Pace:
    """The options of `upgrade os` and `upgrade nvidia` about it; a node's jobs have `timeout_s` to end."""

    batch: str = "10%"
    max_failed: int | None = None
    timeout_s: int = 24 * 3600
    window: Window | None = None

    def is_open(self, now: datetime) -> bool:
        """Whether nodes may be taken out of service now."""
        return self.window is None or self.window.is_open(now)

    def left_sentence(self, names: Iterable[str], again: str, now: datetime) -> str:
        """What is left, and when it continues."""
        opens = (
            f" when the window {self.window.text} opens, {self.window.next_opening(now):%a %F %H:%M}"
            if self.window
            else ""
        )
        return f"{fold(names)} is left: `deepopsctl {again}` continues{opens}"


def batch_size(text: str, count: int) -> int:
    """How many nodes a batch has: `5`, or `10%` of `count`, rounded up."""
    match = re.fullmatch(r"(\d+)(%?)", text, re.ASCII)
    if match is None or int(match[1]) == 0:
        raise DeepOpsError(f"--batch {text}: that is neither a number of nodes nor a share", "for example 5 or 10%")
    number = int(match[1])
    return max(1, -(-count * number // 100)) if match[2] else number


def allowed_failures(wanted: int | None, count: int) -> int:
    """How many of `count` nodes may fail before an upgrade stops: --max-failed, or one in twenty."""
    return max(1, count // 20) if wanted is None else wanted

"""Moments and spans as Prometheus writes them."""

from __future__ import annotations

import calendar
import re
import time
from typing import Optional

_MOMENT = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|([+-])(\d\d):(\d\d))$")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def unix(text: str) -> Optional[float]:
    """`2026-11-22T09:30:00.123456789Z` as seconds since 1970; None for never, which is the year 1."""
    match = _MOMENT.match(text)
    if not match or text.startswith("0001-"):
        return None
    whole, part, _zone, sign, hours, minutes = match.groups()
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(part or 0)
    if sign:
        away = int(hours) * 3600 + int(minutes) * 60
        seconds -= away if sign == "+" else -away
    return seconds


def written(seconds: float) -> str:
    """Seconds since 1970 as Alertmanager reads them."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + "Z"


def span(text: str) -> float:
    """`1m30s` in seconds; 0 for what is none."""
    return sum(float(count) * _SECONDS[unit] for count, unit in _SPAN.findall(text))

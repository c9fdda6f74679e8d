"""The highest or lowest few of many series.

A line for each of a thousand nodes shows nothing to anybody, and weighs a hundred megabytes in a browser.
"""

from __future__ import annotations

import re

MOST = 50
# for a panel's description
HIGHEST = f"Of more than {MOST}, those that are highest on average."
LOWEST = f"Of more than {MOST}, those that are lowest on average."

_SELECTED = re.compile(r"([\w:]+\{[^{}]*\})(\[[^\]]*\])?")


def highest(expr: str) -> str:
    """The same series, but of more than MOST those that are highest in the mean of all the time shown."""
    return f"({expr}) and topk({MOST}, {_in_the_mean(expr)})"


def lowest(expr: str) -> str:
    """Those that are lowest."""
    return f"({expr}) and bottomk({MOST}, {_in_the_mean(expr)})"


def _in_the_mean(expr: str) -> str:
    """One value for each series of an expression: nodes that are gone by the end have one, too."""
    return _SELECTED.sub(_of_all_the_time, expr)


def _of_all_the_time(found: re.Match[str]) -> str:
    window = f"{found[1]}[$__range] @ end()"
    # what has a window is within rate() already
    return window if found[2] else f"avg_over_time({window})"

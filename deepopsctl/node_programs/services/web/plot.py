"""A plot of one measure over time: lines for an SVG without any text in it, and the texts next to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from .course import ASKED, USED, Points

WIDTH, HEIGHT = 600, 150
# of its table, which says the same as its lines
_ROWS = 24
# air above the highest line
_AIR = 1.08
_DAY_S = 86400


def draw(sides: dict[str, Points], start: int, end: int, step: int, form: Callable[[float], str]) -> dict[str, Any]:
    """What the page needs of it; times that monitoring has nothing of are gaps in the lines."""
    used, asked = sides[USED], sides.get(ASKED, [])
    top = max(value for _, value in [*used, *asked]) * _AIR or 1.0
    span = max(end - start, 1)

    def place(point: tuple[float, float]) -> str:
        return f"{WIDTH * (point[0] - start) / span:.1f},{HEIGHT * (1 - point[1] / top):.1f}"

    lines = [[place(point) for point in part] for part in _parts(used, step)]
    parts = _parts(used, step)
    areas = [
        " ".join([place((part[0][0], 0)), *line, place((part[-1][0], 0))]) for part, line in zip(parts, lines)
    ]  # fmt: skip
    return {
        "lines": [" ".join(line) for line in lines],
        "areas": areas,
        "limits": [" ".join(map(place, part)) for part in _parts(asked, step)],
        "top": form(top / _AIR),
        "start": _clock(start, span),
        "end": _clock(end, span),
        "average": form(sum(value for _, value in used) / len(used)),
        "most": form(max(value for _, value in used)),
        "rows": _rows(used, dict(asked), span, form),
    }


def _parts(points: Points, step: int) -> list[Points]:
    """Pieces without a gap; a piece of one point is a short line, as a point has no length."""
    parts: list[Points] = []
    for point in points:
        if parts and point[0] - parts[-1][-1][0] <= 1.5 * step:
            parts[-1].append(point)
        else:
            parts.append([point])
    return [part if len(part) > 1 else [part[0], (part[0][0] + step // 2, part[0][1])] for part in parts]


def _rows(used: Points, asked: dict[int, float], span: int, form: Callable[[float], str]) -> Sequence[dict[str, str]]:
    every = -(-len(used) // _ROWS)
    return [
        {"time": _clock(at, span), "used": form(value), "asked": form(asked[at]) if at in asked else ""}
        for at, value in used[::every]
    ]


def _clock(at: int, span: int) -> str:
    return time.strftime("%a %d %b %H:%M" if span > _DAY_S else "%H:%M", time.localtime(at))

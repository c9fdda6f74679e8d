"""Bandwidth by message size as a small inline SVG, for the HTML report. Pure: points in, text out."""

from __future__ import annotations

from math import log2
from typing import Any, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 420, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 96, 14, 30
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_LABEL = 11.0
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size_text(size: float) -> str:
    """`64 KiB`."""
    for factor, unit in _UNITS:
        if size >= factor:
            return "{:g} {}".format(round(size / factor, 1), unit)
    return "{:g} B".format(size)


def bandwidth_plot(title: str, lines: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One line for each name, its points as in the results ({"bytes", "gb_s"}); '' where there is nothing to draw.

    Colours come from the page (`currentColor`), lines differ by dashes as well: it prints, and it serves dark pages.
    """
    drawn = {name: sorted(points, key=lambda point: float(point["bytes"])) for name, points in lines.items() if points}
    if not drawn:
        return ""
    sizes = sorted({float(point["bytes"]) for points in drawn.values() for point in points})
    top = _nice(max(float(point["gb_s"]) for points in drawn.values() for point in points))
    parts = [
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg" '
        'font-family="inherit" font-size="10" fill="currentColor">'.format(WIDTH, HEIGHT, _quoted(title)),
        "<title>{}</title>".format(escape(title)),
        *_axes(sizes, top),
    ]
    ends = _label_places({name: _y(points[-1]["gb_s"], top) for name, points in drawn.items()})
    for number, (name, points) in enumerate(drawn.items()):
        places = [(_x(point["bytes"], sizes), _y(point["gb_s"], top)) for point in points]
        parts += _line(name, places, ends[name], _DASHES[number % len(_DASHES)])
    return "".join(parts) + "</svg>"


def _label_places(ends: Mapping[str, float]) -> dict[str, float]:
    """Where the names stand: beside their lines' ends, but never on top of each other."""
    places: dict[str, float] = {}
    last = -_LABEL
    for name, y in sorted(ends.items(), key=lambda entry: entry[1]):
        last = places[name] = max(y, last + _LABEL)
    return places


def _axes(sizes: list[float], top: float) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for share in (0, 0.5, 1):
        y = _y(share * top, top)
        parts.append(
            '<line x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" stroke-opacity="{}"/>'
            '<text x="{}" y="{:.1f}" text-anchor="end">{:g}</text>'.format(
                _LEFT, right, 0.2 if share else 0.6, _LEFT - 6, y + 3.5, share * top, y=y
            )
        )
    for size in dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
        x = _x(size, sizes)
        parts.append('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>'.format(x, bottom + 15, size_text(size)))
    parts.append('<text x="2" y="{}">GB/s</text>'.format(_TOP - 4))
    return parts


def _line(name: str, points: list[tuple[float, float]], label: float, dashes: str) -> list[str]:
    path = " ".join("{:.1f},{:.1f}".format(x, y) for x, y in points)
    x, y = points[-1]
    return [
        '<polyline points="{}" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="{}"/>'.format(
            path, dashes
        ),
        '<circle cx="{:.1f}" cy="{:.1f}" r="2.2"/>'.format(x, y),
        '<text x="{:.1f}" y="{:.1f}">{}</text>'.format(x + 6, label + 3.5, escape(name)),
    ]


def _x(size: float, sizes: list[float]) -> float:
    span = log2(sizes[-1]) - log2(sizes[0])
    share = (log2(size) - log2(sizes[0])) / span if span else 0.5
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(rate: float, top: float) -> float:
    return HEIGHT - _BOTTOM - rate / top * (HEIGHT - _TOP - _BOTTOM)


def _nice(highest: float) -> float:
    """A round number at or above."""
    if highest <= 0:
        return 1.0
    scale = 10.0 ** int("{:e}".format(highest).partition("e")[2])
    return next(step * scale for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * scale >= highest)


def _quoted(text: str) -> str:
    return escape(text, {'"': "&quot;"})

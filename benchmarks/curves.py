"""Curves over sizes as one SVG image: charts side by side, both axes logarithmic; what is linear is a straight line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from deepopsctl.report.gpu.plots import svg_image, tag, words

_CHART = (330, 300)
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 96, 34, 34
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_COLOURS = ("#0b6", "#06c", "#c50", "#808", "#a22", "#066", "#555", "#b08")
_LINE = 12.0


class Point(NamedTuple):
    """A size, and what was measured there."""

    size: float
    value: float


Curves = Mapping[str, Sequence[Point]]


def curves(title: str, axis: str, charts: Mapping[str, Curves]) -> str:
    """All charts, each with the names at the ends of its lines; dotted grey lines grow as the sizes do."""
    width = _CHART[0] * len(charts)
    parts = [
        tag("g", *_chart(name, axis, lines), transform=f"translate({number * _CHART[0]} 0)", font_size=11)
        for number, (name, lines) in enumerate(charts.items())
    ]
    background = tag("rect", width=width, height=_CHART[1], fill="#fff")
    return svg_image(title, f"by {axis}: {', '.join(charts)}", (width, _CHART[1]), [background, *parts]) + "\n"


def _chart(name: str, axis: str, lines: Curves) -> Iterator[str]:
    points = [point for line in lines.values() for point in line]
    sizes = sorted({point.size for point in points})
    low = floor(log10(min(point.value for point in points)))
    high = ceil(log10(max(point.value for point in points)))
    right, bottom = _CHART[0] - _RIGHT, _CHART[1] - _BOTTOM

    def x(size: float) -> float:
        share = log10(size / sizes[0]) / log10(sizes[-1] / sizes[0]) if len(sizes) > 1 else 0.5
        return _LEFT + share * (right - _LEFT)

    def y(value: float) -> float:
        return bottom - (log10(value) - low) / (high - low or 1) * (bottom - _TOP)

    yield words(name, _LEFT, 16)
    for power in range(low, high + 1):
        yield tag("line", x1=_LEFT, x2=right, y1=y(10.0**power), y2=y(10.0**power), stroke="#ddd")
        yield words(f"{10.0**power:g}", _LEFT - 6, y(10.0**power) + 4, "end")
    for size in sizes:
        yield words(f"{size:,g}", x(size), bottom + 15, "middle")
    yield words(axis, (_LEFT + right) / 2, bottom + 29, "middle")
    yield tag("line", x1=x(sizes[0]), x2=right, y1=y(10.0**low * sizes[0] / sizes[0]),
              y2=max(y(10.0**low * sizes[-1] / sizes[0]), _TOP), stroke="#999", stroke_dasharray="1 3")  # fmt: skip
    places = _places([y(line[-1].value) for line in lines.values()])
    for number, ((label, line), place) in enumerate(zip(lines.items(), places, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in line)
        yield tag("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6,
                  stroke_dasharray=_DASHES[number % len(_DASHES)])  # fmt: skip
        yield from (tag("circle", cx=x(size), cy=y(value), r=2.2, fill=colour) for size, value in line)
        yield tag("text", label, x=right + 8, y=place + 4, fill=colour)


def _places(ends: Sequence[float]) -> list[float]:
    """Heights of the names at the ends of their lines, without overlap."""
    places, last = [0.0] * len(ends), 0.0
    for number, end in sorted(enumerate(ends), key=lambda pair: pair[1]):
        places[number] = last = max(end, last + _LINE)
    over = max(0.0, last - (_CHART[1] - _BOTTOM + _LINE))
    return [place - over for place in places]

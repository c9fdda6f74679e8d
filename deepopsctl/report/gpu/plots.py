"""Charts of GPU measurements as inline SVG: distributions, rates by message size, and between pairs. Pure.

Colours are the page's (its classes and `currentColor`): they work on dark pages and paper, and no information is in
colour alone: lines differ by dashes, outliers have their names next to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from xml.sax.saxutils import escape, quoteattr

from deepopsctl.report.model import figure, spread

WIDTH, HEIGHT = 300, 74
_STRIP_EDGE, _BASE = 6, HEIGHT - 24
_BINS = 72
# how wide a letter of a name is, about
_LETTER = 7.5

Point = tuple[float, float]  # bytes, GB/s

_SIZE = (460, 232)
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 132, 22, 28
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_LABEL = 13.0
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_CELL, _EDGE = 30, 26


def tag(name: str, *inside: str, **attributes: object) -> str:
    """One element around elements; `font_size` is written font-size, `class_` class."""
    named = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_shown(value))}"
        for key, value in attributes.items()
        if value not in (None, "")
    )
    body = "".join(inside)
    return f"<{name}{named}>{body}</{name}>" if body else f"<{name}{named}/>"


def words(text: str, x: float, y: float, anchor: str = "", class_: str = "") -> str:
    """Text at a place."""
    return tag("text", escape(text), x=x, y=y, text_anchor=anchor, class_=class_)


def svg_image(title: str, description: str, size: tuple[int, int], parts: Iterable[str]) -> str:
    """The whole image. Screen readers use title and description; `viewBox` scales it."""
    return tag(
        "svg", tag("title", escape(title)), tag("desc", escape(description)) if description else "", *parts,
        class_="plot", viewBox=f"0 0 {size[0]} {size[1]}", width=size[0], role="img",
        aria_label=f"{title}. {description}".rstrip(". "), xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


def hint(text: str) -> str:
    """What a mouse over an element shows."""
    return tag("title", escape(text))


@dataclass(frozen=True, slots=True)
class Dot:
    """One GPU on a strip; `status` is empty for good ones."""

    label: str
    value: float
    status: str = ""

    @property
    def name(self) -> str:
        """The label of an outlier."""
        return f"{self.label} {figure(self.value)}"


def strip(title: str, dots: Sequence[Dot], unit: str, bound: float = 0) -> str:
    """Bars for good GPUs, a named mark for each outlier, a dashed line at the warning bound; '' without dots."""
    if not dots:
        return ""
    scale = _Scale.over([*(dot.value for dot in dots), *([bound] if bound else [])])
    good = [dot.value for dot in dots if not dot.status]
    outliers = sorted((dot for dot in dots if dot.status), key=lambda dot: dot.value)
    parts = [tag("line", x1=_STRIP_EDGE, x2=WIDTH - _STRIP_EDGE, y1=_BASE, y2=_BASE, class_="base")]
    if bound:
        x = scale.x(bound)
        line = hint(f"a warning below {figure(bound)} {unit}")
        parts.append(tag("line", line, x1=x, x2=x, y1=10, y2=_BASE + 4, class_="bound"))
    parts += [*_bars(good, scale), *_marks(outliers, scale)]
    shown = spread(good or [dot.value for dot in dots])
    parts.append(_caption(shown, good or [dot.value for dot in dots], scale))
    summary = [f"{len(good)} GPUs: {shown} {unit}"] if good else []
    named = [dot.name for dot in outliers[:8]]
    return svg_image(
        title, "; outliers: ".join([*summary, *([", ".join(named)] if named else [])]), (WIDTH, HEIGHT), parts
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """One line with its name; `low` and `high` are the edges of a band around it; outliers have their own style."""

    name: str
    points: tuple[Point, ...]
    low: tuple[Point, ...] = ()
    high: tuple[Point, ...] = ()
    outlier: bool = False


def size_text(size: float) -> str:
    """`64 KiB`."""
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{round(size / factor, 1):g} {unit}"
    return f"{size:g} B"


def bandwidth_plot(title: str, curves: Sequence[Curve], description: str = "") -> str:
    """GB/s by message size, one line a curve; '' where there is nothing to draw."""
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return ""
    sizes = sorted({size for curve in drawn for size, _ in curve.points})
    top = _nice(max(rate for curve in drawn for _, rate in (*curve.points, *curve.high)))
    ends = _label_places([_y(curve.points[-1][1], top) for curve in drawn])
    plain = [curve.name for curve in drawn if not curve.outlier]
    parts = [*_axes(sizes, top)]
    for curve, end in zip(drawn, ends, strict=True):
        dashes = _DASHES[plain.index(curve.name) % len(_DASHES)] if not curve.outlier else _DASHES[2]
        parts.append(_curve(curve, sizes, top, end, dashes))
    return svg_image(title, description or _description(drawn), _SIZE, parts)


def heat_map(title: str, rates: Mapping[tuple[int, int], float], slow_below: float = 0) -> str:
    """GB/s from every GPU (row) to every other one (column); pairs below the bound are outlined."""
    if not rates:
        return ""
    ends = sorted({end for pair in rates for end in pair})
    top = max(rates.values()) or 1.0
    place = {end: _EDGE + number * _CELL for number, end in enumerate(ends)}
    parts = [words("to", _EDGE - 6, _EDGE - 8, "end")]
    for end in ends:
        middle = place[end] + _CELL / 2
        parts += [words(str(end), middle, _EDGE - 8, "middle"), words(str(end), _EDGE - 8, middle + 4, "end")]
    for (one, other), rate in sorted(rates.items()):
        share = max(0.0, rate / top)
        slow = rate < slow_below
        parts.append(
            tag(
                "g",
                hint(f"GPU {one} to GPU {other}: {figure(rate)} GB/s{', slow' if slow else ''}"),
                tag("rect", x=place[other] + 1, y=place[one] + 1, width=_CELL - 2, height=_CELL - 2,
                    fill_opacity=f"{0.05 + 0.5 * share:.2f}"),
                words(f"{figure(rate)}", place[other] + _CELL / 2, place[one] + _CELL / 2 + 3.5, "middle"),
                class_="cell slow" if slow else "cell",
            )
        )  # fmt: skip
    edge = _EDGE + len(ends) * _CELL + 2
    description = f"{spread(rates.values())} GB/s over {len(rates)} pairs"
    return svg_image(title, description, (edge, edge), parts)


def _shown(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> _Scale:
        low, high = min(values), max(values)
        room = (high - low) * 0.04 or abs(high) * 0.02 or 1.0
        return cls(low - room, high + room)

    def x(self, value: float) -> float:
        return _STRIP_EDGE + (value - self.low) / (self.high - self.low) * (WIDTH - 2 * _STRIP_EDGE)


def _bars(good: Sequence[float], scale: _Scale) -> Iterator[str]:
    width = (WIDTH - 2 * _STRIP_EDGE) / _BINS
    bins = Counter(min(_BINS - 1, int((scale.x(value) - _STRIP_EDGE) / width)) for value in good)
    for number, count in sorted(bins.items()):
        height = 6 + 26 * count / max(bins.values())
        place = {"x": _STRIP_EDGE + number * width, "y": _BASE - height, "width": width - 0.6, "height": height}
        yield tag("rect", hint(f"{count} GPUs"), class_="tally", **place)


def _marks(outliers: Sequence[Dot], scale: _Scale) -> Iterator[str]:
    free = 0.0
    for dot in outliers:
        x = scale.x(dot.value)
        length = _LETTER * len(dot.name)
        start = max(2.0, min(x - 4, WIDTH - length))
        named = start >= free
        label = words(dot.name, start, _BASE - 16) if named else ""
        # the worst comes first: a name is written where none stands yet
        free = start + length if named else free
        mark = tag("circle", hint(dot.name), cx=x, cy=_BASE - 6, r=4)
        yield tag("g", mark, label, class_=f"outlier {dot.status}")


def _caption(text: str, values: Sequence[float], scale: _Scale) -> str:
    middle = (scale.x(min(values)) + scale.x(max(values))) / 2
    half = _LETTER * len(text) / 2
    return words(text, max(half, min(middle, WIDTH - half)), HEIGHT - 8, "middle")


def _description(curves: Sequence[Curve]) -> str:
    return "; ".join(f"{curve.name}: up to {figure(max(rate for _, rate in curve.points))} GB/s" for curve in curves)


def _label_places(ends: Sequence[float]) -> list[float]:
    """Places of the names: next to their lines' ends, without overlap."""
    places = [0.0] * len(ends)
    last = 0.0
    for number, y in sorted(enumerate(ends), key=lambda pair: pair[1]):
        last = places[number] = max(y, last + _LABEL)
    over = max(0.0, last - (_SIZE[1] - 4))
    return [place - over for place in places]


def _axes(sizes: Sequence[float], top: float) -> list[str]:
    right, bottom = _SIZE[0] - _RIGHT, _SIZE[1] - _BOTTOM
    parts = [words("GB/s", _LEFT - 6, 10, "end")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share * top, top)
        parts.append(tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid" if share else "base"))
        if share in (0, 0.5, 1):
            parts.append(words(f"{share * top:g}", _LEFT - 6, y + 3.5, "end"))
    step = max(1, (len(sizes) - 1) // 3)
    for number, size in enumerate(sizes):
        x = _x(size, sizes)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="base"))
        if number % step == 0 and (len(sizes) - 1 - number >= step or number == len(sizes) - 1):
            parts.append(words(size_text(size), x, bottom + 16, "middle"))
    if (len(sizes) - 1) % step:
        parts.append(words(size_text(sizes[-1]), _x(sizes[-1], sizes), bottom + 16, "middle"))
    return parts


def _curve(curve: Curve, sizes: Sequence[float], top: float, label: float, dashes: str) -> str:
    def places(points: Sequence[Point]) -> list[Point]:
        return [(_x(size, sizes), _y(rate, top)) for size, rate in points]

    def path(points: Sequence[Point]) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

    here = places(curve.points)
    parts = []
    if curve.low and curve.high:
        edge = [*places(curve.high), *reversed(places(curve.low))]
        parts.append(tag("polygon", points=path(edge), class_="band"))
    parts.append(tag("polyline", points=path(here), stroke_dasharray=dashes))
    for (x, y), (size, rate) in zip(here, curve.points, strict=True):
        parts.append(tag("circle", hint(f"{curve.name}, {size_text(size)}: {figure(rate)} GB/s"), cx=x, cy=y, r=2.2))
    name = f"{curve.name} {figure(curve.points[-1][1])}"
    x, y = here[-1]
    if abs(label - y) > 1:
        parts.append(tag("line", x1=x + 4, x2=x + 11, y1=y, y2=label, class_="lead"))
    parts.append(words(name, x + 14, label + 3.5))
    return tag("g", *parts, class_="curve outlier" if curve.outlier else "curve")


def _x(size: float, sizes: Sequence[float]) -> float:
    low, high = (log2(max(end, 1)) for end in (sizes[0], sizes[-1]))
    share = (log2(max(size, 1)) - low) / (high - low) if high > low else 0.5
    return _LEFT + share * (_SIZE[0] - _LEFT - _RIGHT)


def _y(rate: float, top: float) -> float:
    return _SIZE[1] - _BOTTOM - rate / top * (_SIZE[1] - _TOP - _BOTTOM)


def _nice(highest: float) -> float:
    """A round number at or above."""
    if highest <= 0:
        return 1.0
    scale = 10.0 ** int(f"{highest:e}".partition("e")[2])
    return next(step * scale for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10) if step * scale >= highest)

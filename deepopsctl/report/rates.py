"""The part of the HTML page about rates of nodes, as lines over this run and earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from deepopsctl.checks.catalogue.suites import entry
from deepopsctl.checks.check import Status
from deepopsctl.report.gpu.plots import hint, svg_image, tag, words
from deepopsctl.report.model import Series, figure, spread

# of more lines than these, the outliers and the range of the others
FEW = 6
_SIZE = (460, 190)
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 150, 20, 26
_LABEL = 13.0
_BAD = (Status.WARN, Status.FAIL)


@dataclass(frozen=True, slots=True)
class Chart:
    """All lines of one check; SVG with escaped text."""

    title: str
    image: str


def build_charts(series: Iterable[Series]) -> tuple[Chart, ...]:
    """One chart for each check and unit."""
    ordered = sorted(series, key=lambda each: (each.suite, each.name, each.unit, each.target))
    charts = []
    for (suite, name, unit), lines in groupby(ordered, key=lambda each: (each.suite, each.name, each.unit)):
        known = entry(name, suite)
        title = f"{known.group}: {known.title}, {unit}"
        charts.append(Chart(title, history_plot(title, tuple(lines))))
    return tuple(charts)


def history_plot(title: str, lines: Sequence[Series]) -> str:
    """The values of each target by the day of their run."""
    times = sorted({when for line in lines for when, _value in line.points})
    top = max(value for line in lines for _when, value in line.points) * 1.08 or 1.0
    outliers = [line for line in lines if line.status in _BAD]
    good = [line for line in lines if line.status not in _BAD]
    named = [*outliers[:FEW], *(good if len(good) <= FEW else [])]
    parts = [*_axes(times, top), *(_plain(line, times, top) for line in lines if line not in named)]
    ends = _spaced([_y(line.points[-1][1], top) for line in named])
    parts += [_named(line, times, top, end) for line, end in zip(named, ends, strict=True)]
    shown = spread(line.points[-1][1] for line in good or lines)
    places = f"{len(good or lines)} measured now: {shown} {lines[0].unit}"
    worse = ", ".join(f"{line.target} {figure(line.points[-1][1])}" for line in outliers[:FEW])
    return svg_image(title, places + (f"; outliers: {worse}" if worse else ""), _SIZE, parts)


def _axes(times: Sequence[str], top: float) -> list[str]:
    right, bottom = _SIZE[0] - _RIGHT, _SIZE[1] - _BOTTOM
    parts = []
    for share in (0, 0.5, 1):
        y = _y(share * top, top)
        parts.append(tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid" if share else "base"))
        parts.append(words(figure(share * top), _LEFT - 6, y + 3.5, "end"))
    days = (times[0][:10], times[-1][:10])
    parts.append(words(days[0], _LEFT, bottom + 16))
    if days[0] != days[1]:
        parts.append(words(days[1], right, bottom + 16, "end"))
    return parts


def _places(line: Series, times: Sequence[str], top: float) -> list[tuple[float, float]]:
    return [(_x(when, times), _y(value, top)) for when, value in line.points]


def _polyline(places: Sequence[tuple[float, float]]) -> str:
    return tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))


def _plain(line: Series, times: Sequence[str], top: float) -> str:
    about = hint(f"{line.target}: {figure(line.points[-1][1])} {line.unit}")
    places = _places(line, times, top)
    return tag("g", about, _polyline(places), *_dots(line, places), class_="curve", opacity="0.35")


def _named(line: Series, times: Sequence[str], top: float, label: float) -> str:
    places = _places(line, times, top)
    x, y = places[-1]
    parts = [_polyline(places), *_dots(line, places)]
    if abs(label - y) > 1:
        parts.append(tag("line", x1=x + 4, x2=x + 11, y1=y, y2=label, class_="lead"))
    parts.append(words(f"{line.target} {figure(line.points[-1][1])}", x + 14, label + 3.5))
    return tag("g", *parts, class_="curve outlier" if line.status in _BAD else "curve")


def _dots(line: Series, places: Sequence[tuple[float, float]]) -> list[str]:
    return [
        tag("circle", hint(f"{line.target}, {when[:16]}: {figure(value)} {line.unit}"), cx=x, cy=y, r=2.2)
        for (when, value), (x, y) in zip(line.points, places, strict=True)
    ]


def _x(when: str, times: Sequence[str]) -> float:
    """Runs are equally far from each other, whatever the days between them."""
    share = times.index(when) / (len(times) - 1) if len(times) > 1 else 0.5
    return _LEFT + share * (_SIZE[0] - _LEFT - _RIGHT)


def _y(value: float, top: float) -> float:
    return _SIZE[1] - _BOTTOM - value / top * (_SIZE[1] - _TOP - _BOTTOM)


def _spaced(ends: Sequence[float]) -> list[float]:
    """Places of the names: next to their lines' ends, without overlap."""
    places = [0.0] * len(ends)
    last = 0.0
    for number, y in sorted(enumerate(ends), key=lambda pair: pair[1]):
        last = places[number] = max(y, last + _LABEL)
    return places

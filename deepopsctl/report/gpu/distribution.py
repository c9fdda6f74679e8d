"""Distribution of one rate over all GPUs of a model, as inline SVG: outliers show among thousands. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepopsctl.report.model import figure, spread
from deepopsctl.report.svg import hint, svg_image, tag, words

WIDTH, HEIGHT = 300, 74
_EDGE, _BASE = 6, HEIGHT - 24
_BINS = 72
# how wide a letter of a name is, about
_LETTER = 7.5


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
        return _EDGE + (value - self.low) / (self.high - self.low) * (WIDTH - 2 * _EDGE)


def strip(title: str, dots: Sequence[Dot], unit: str, bound: float = 0) -> str:
    """Bars for good GPUs, a named mark for each outlier, a dashed line at the warning bound; '' without dots."""
    if not dots:
        return ""
    scale = _Scale.over([*(dot.value for dot in dots), *([bound] if bound else [])])
    good = [dot.value for dot in dots if not dot.status]
    outliers = sorted((dot for dot in dots if dot.status), key=lambda dot: dot.value)
    parts = [tag("line", x1=_EDGE, x2=WIDTH - _EDGE, y1=_BASE, y2=_BASE, class_="base")]
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


def _bars(good: Sequence[float], scale: _Scale) -> Iterator[str]:
    width = (WIDTH - 2 * _EDGE) / _BINS
    bins = Counter(min(_BINS - 1, int((scale.x(value) - _EDGE) / width)) for value in good)
    for number, count in sorted(bins.items()):
        height = 6 + 26 * count / max(bins.values())
        place = {"x": _EDGE + number * width, "y": _BASE - height, "width": width - 0.6, "height": height}
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
        yield tag("g", mark, label, class_=f"odd {dot.status}")


def _caption(text: str, values: Sequence[float], scale: _Scale) -> str:
    middle = (scale.x(min(values)) + scale.x(max(values))) / 2
    half = _LETTER * len(text) / 2
    return words(text, max(half, min(middle, WIDTH - half)), HEIGHT - 8, "middle")

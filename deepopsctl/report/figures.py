"""Measured numbers as reports write them."""

from __future__ import annotations

from collections.abc import Iterable


def figure(value: float) -> str:
    """Three digits, or all before the point: `3028`, `585`, `55.3`, `0.31`."""
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def spread(values: Iterable[float]) -> str:
    """`2998–3011`; one number where they are alike."""
    return span(figure(value) for value in ends(values))


def whole(values: Iterable[float]) -> str:
    """The same for what is counted in whole numbers: `54–63`."""
    return span(f"{value:.0f}" for value in ends(values))


def ends(values: Iterable[float]) -> tuple[float, float]:
    """The lowest and the highest."""
    listed = list(values)
    return min(listed), max(listed)


def span(texts: Iterable[str]) -> str:
    """Two ends as one text."""
    return "–".join(dict.fromkeys(texts))

"""SVG as text: every attribute and every word escaped, since much of it comes from nodes."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr


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


def _shown(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)

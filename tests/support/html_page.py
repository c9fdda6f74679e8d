"""A page of HTML, read by a strict parser."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Collects what would be fetched, and whether tags are balanced."""

    VOID = frozenset({"meta", "col", "br", "link", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} closes nothing"


def page(text: str) -> Page:
    """The page; an AssertionError where tags are not balanced."""
    result = Page()
    result.feed(text)
    assert result.open == []
    return result

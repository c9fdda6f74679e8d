"""Pages of the documentation as text: found by a name as messages have it, and cut to one section."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from deepopsctl.errors import InputError
from deepopsctl.text.values import suggest

_HEADING = re.compile(r"(#{1,6}) +(.*?)(?: *\{[^}]*\})? *")
_UNSEEN = re.compile(r'^<!-- .* -->\n|<a id="[^"]*"></a>', re.MULTILINE)
_FENCE = re.compile(r" *(```|~~~)")


def find_page(word: str, names: Iterable[str]) -> tuple[str, str]:
    """The page and the anchor ('' for none) of `docs/operate/backup.md#a-part`, `operate/backup` or `backup`."""
    known = list(names)
    name, _, anchor = word.removeprefix("docs/").partition("#")
    # llms.txt has addresses of the site
    name = name.removesuffix(".md").removesuffix("/")
    fitting = [each for each in known if each == name] or [each for each in known if each.rpartition("/")[2] == name]
    if len(fitting) == 1:
        return fitting[0], anchor
    hint = f"one of {', '.join(fitting)}" if fitting else suggest(name, known)
    raise InputError.single("NAME", f"{name} is {'several pages' if fitting else 'not a page'}", hint)


def title_of(text: str) -> str:
    """The title of a page."""
    return next((title for _, _, title in _headings(text.splitlines())), "")


def as_read(text: str) -> str:
    """A page without what only a browser or a script reads: comments on lines of their own, and anchors."""
    return _UNSEEN.sub("", text)


def section(text: str, anchor: str) -> str:
    """The section of a page with this anchor, and those below it; the whole page without one."""
    lines = text.splitlines(keepends=True)
    headings = list(_headings(lines))
    for index, (start, level, title) in enumerate(headings):
        if slug(title) == anchor:
            end = next((line for line, below, _ in headings[index + 1 :] if below <= level), len(lines))
            return "".join(lines[start:end])
    return text


def _headings(lines: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Line, level and text of each; `# a comment` in a block of code is none."""
    code = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            code = not code
        elif not code and (match := _HEADING.fullmatch(line.rstrip("\n"))):
            yield number, len(match[1]), match[2]


def slug(title: str) -> str:
    """As the site and GitHub make it."""
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")

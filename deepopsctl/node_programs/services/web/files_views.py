"""What the pages of files show: names that can't deceive, and addresses of them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ..._shared.values import format_size
from .files import ORDERS, Root

NO_ANSWER = "The files do not answer now. Try again in a minute; your administrators see it, too."
HALF_A_YEAR_S = 182 * 86400
Pieces = list[tuple[str, bool]]
_AS_THEY_ARE = frozenset("\n\t")
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@ ")


def pieces(text: str, kept: frozenset[str] = frozenset()) -> Pieces:
    """A text in pieces; those with True stand for letters that are not seen, or that turn the order of others."""
    result: list[tuple[list[str], bool]] = []
    for letter in text:
        is_marked = not (letter.isprintable() or letter in kept)
        if not result or result[-1][1] != is_marked:
            result.append(([], is_marked))
        result[-1][0].append(_code(letter) if is_marked else letter)
    return [("".join(letters), is_marked) for letters, is_marked in result]


def _code(letter: str) -> str:
    number = ord(letter)
    # a byte outside of UTF-8, as Python keeps it
    return f"<{number - 0xDC00:02X}>" if 0xDC80 <= number <= 0xDCFF else f"<U+{number:04X}>"


def plain(text: str) -> str:
    """The same as one text, for titles and labels."""
    return "".join(part for part, _ in pieces(text))


def address(place: Sequence[str]) -> str:
    """The end of the address of a place, in ASCII."""
    return "/".join(quote(os.fsencode(name), safe="") for name in place)


def attachment(name: str) -> str:
    """The header by which a browser stores a file, whatever its name is."""
    safe = "".join(letter if letter in _KEPT else "_" for letter in name)
    whole = quote(name.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{safe}\"; filename*=UTF-8''{whole}"


def size(value: int) -> str:
    """`10 GiB`."""
    return format_size(value)


def index(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page where one begins."""
    roots = [Root(**each) for each in answer.get("roots", [])]
    return {
        "trouble": answer.get("trouble", ""),
        "roots": [
            {"label": plain(each.label), "path": plain(each.path), "href": address([each.key])} for each in roots
        ],
    }


def place(names: Sequence[str], answer: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Of the page of a directory, a file, or anything else; `asked` is what of it, and in which order."""
    labels = [answer.get("label", names[0]), *names[1:]]
    now, find, every = answer.get("page", 1), asked["find"], asked["all"]
    order = answer.get("order", "name")
    return {
        **{key: value for key, value in answer.items() if key not in ("page", "name")},
        "trouble": answer.get("trouble", ""),
        "kind": answer.get("kind", ""),
        "title": plain(labels[-1]),
        "shown": pieces(labels[-1]),
        "steps": [
            {"label": pieces(label), "href": address(names[: index + 1])} for index, label in enumerate(labels[:-1])
        ],
        "href": address(names),
        "is_root": len(names) == 1,
        "size": format_size(answer.get("size", 0)),
        "time": moment(answer.get("time", 0)),
        "free": format_size(answer.get("free", 0)),
        "page_now": now,
        "hidden_too": every,
        "queries": {
            **{key: _query(key, find, every=every) for key in ORDERS},
            "before": _query(order, find, now - 1, every=every),
            "next": _query(order, find, now + 1, every=every),
            "hidden": _query(order, find, every=True),
        },
        "entries": [_entry(names, each) for each in answer.get("entries", [])],
        "preview": _preview(answer.get("preview")),
        "target": pieces(answer.get("target", "")),
        "leads": address(answer["leads"]) if answer.get("leads") else "",
    }


def _query(order: str, find: str, page: int = 1, *, every: bool) -> str:
    wanted = {"order": order, "find": find, "all": "1" if every else "", "page": str(page) if page > 1 else ""}
    return urlencode({key: value for key, value in wanted.items() if value}, errors="surrogateescape")


def moment(seconds: int) -> str:
    """`29 Nov 14:05`; with the year where it is another one."""
    if seconds <= 0:
        return ""
    when = time.localtime(seconds)
    is_near = abs(time.time() - seconds) < HALF_A_YEAR_S
    return time.strftime("%d %b %H:%M" if is_near else "%d %b %Y", when)


def _entry(names: Sequence[str], each: dict[str, Any]) -> dict[str, Any]:
    return {
        **each,
        "shown": pieces(each["name"]),
        "plain": plain(each["name"]),
        "href": address([*names, each["name"]]),
        "size": format_size(each["size"]) if each["kind"] == "file" else "",
        "time": moment(each["time"]),
        "target": pieces(each.get("target", "")),
    }


def _preview(preview: dict[str, Any] | None) -> dict[str, Any] | None:
    if preview is None or preview["as"] != "text":
        return preview
    return {**preview, "pieces": pieces(preview["text"].replace("\r\n", "\n"), _AS_THEY_ARE)}

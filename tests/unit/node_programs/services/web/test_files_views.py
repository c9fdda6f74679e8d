"""What the pages of files show: no name or text deceives, none is markup, and addresses lead to what is shown."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from deepopsctl.node_programs.services.web import files_views
from tests.unit.node_programs.services.web.test_pages import EVIL, page

NAMES = [
    EVIL,
    "a\u202efdp.exe",
    "a\nb",
    "\udcff",
    "..%2f..",
    "?x#y",
    "{{ 7 * 7 }}",
    "a\x1b[2J",
    "\u200b",
    "x\\y",
    "ü 😀",
]
ASKED = {"page": 1, "order": "name", "find": EVIL, "all": False}
COMMON = {"find": EVIL, "most": 1 << 30, "page": ""}


def directory(**more: Any) -> dict[str, Any]:
    entries = [{"name": name, "kind": "file", "size": 1, "time": 1796000000} for name in NAMES]
    entries += [{"name": EVIL, "kind": "link", "size": 1, "time": 0, "target": EVIL}]
    return {
        "kind": "directory", "label": "Home", "entries": entries, "count": 500, "hidden": 2, "more": True, "page": 1,
        "pages": 3, "order": "name", "can_sort": True, "free": 1 << 30, "writable": True, **more,
    }  # fmt: skip


def file(text: str) -> dict[str, Any]:
    preview = {"as": "text", "text": text, "cut": True}
    return {"kind": "file", "label": "Home", "size": 5, "time": 1796000000, "preview": preview}


def shown(answer: dict[str, Any], name: str = EVIL) -> str:
    return page("files.html", **{**COMMON, **files_views.place(["home", name], answer, ASKED)})


@pytest.mark.parametrize(
    "answer",
    [
        directory(),
        directory(entries=[]),
        file(EVIL),
        {"kind": "link", "label": EVIL, "target": EVIL, "leads": ["home", EVIL]},
        {"kind": "file", "label": EVIL, "preview": {"as": "closed", "reason": EVIL}},
        {"kind": "file", "label": EVIL, "preview": {"as": "image"}},
        {"kind": "pipe", "label": EVIL},
        {"trouble": EVIL},
    ],
)
def test_what_users_choose_is_no_markup(answer: dict[str, Any]) -> None:
    text = shown(answer)

    assert "<img src=x" not in text
    assert "&lt;img src=x" in text
    assert "49" not in shown(directory(entries=[{"name": "{{ 7 * 7 }}", "kind": "file", "size": 1, "time": 0}]))


@pytest.mark.parametrize("name", NAMES)
def test_an_address_is_ascii_and_leads_to_the_very_name(name: str) -> None:
    address = files_views.address(["home", name])

    assert address.isascii()
    assert not set(address) & set(" \"'<>?#\\\n")
    assert unquote_to_bytes(address) == b"home/" + os.fsencode(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_seen_or_turns_the_order_is_shown_as_its_number(name: str) -> None:
    assert files_views.plain(name).isprintable()
    # no two names look the same by what can't be seen
    assert len({files_views.plain(each) for each in NAMES}) == len(NAMES)
    assert files_views.pieces("a\u202eb\udcff") == [("a", False), ("<U+202E>", True), ("b", False), ("<FF>", True)]
    assert '<span class="mark">&lt;U+202E&gt;</span>' in shown(file("a\u202eb"))
    assert "first\n\tsecond" in shown(file("first\r\n\tsecond"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_stored_under_its_name_and_adds_no_header(name: str) -> None:
    header = files_views.attachment(name)

    assert header.startswith('attachment; filename="')
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2


def test_pages_of_a_directory_keep_what_was_asked_for() -> None:
    queries = files_views.place(["home"], directory(page=2), {**ASKED, "find": "a&b=ü", "all": True})["queries"]

    assert queries["next"] == "order=name&find=a%26b%3D%C3%BC&all=1&page=3"
    assert queries["time"] == "order=time&find=a%26b%3D%C3%BC&all=1"


def test_the_roots_are_there() -> None:
    roots = [{"key": "home", "label": "Home", "path": "/home/alice"}, {"key": "project:x", "label": EVIL, "path": EVIL}]

    text = page("roots.html", **files_views.index({"roots": roots}))

    assert 'href="/hub/files/project%3Ax"' in text
    assert "<img src=x" not in text

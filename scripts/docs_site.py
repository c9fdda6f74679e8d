"""MkDocs hooks: links into the repository lead to its pages, if it is known, tables fit a narrow screen, and each page
has a description for search and link previews."""

from __future__ import annotations

import posixpath
import re
from typing import Any

# what a search page shows
LONGEST = 180
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?:\.\./)+[^)#\s]*)(?P<anchor>[^)]*)\)")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADER = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
_DIALOG = 'data-md-component="search" role="dialog"'
_CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_unused: Any) -> str:
    """Replace each relative link that leaves docs/ by an address, or by its text; MkDocs calls it once a page."""

    def address(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match["target"]))
        if path.startswith("docs/"):
            return match[0]
        text = match["text"]
        return f"[{text}]({config.repo_url}/blob/main/{path}{match['anchor']})" if config.repo_url else text

    page.meta.setdefault("description", description(markdown))
    return _LINK.sub(address, markdown)


def description(markdown: str) -> str:
    """The first paragraph of a page without marks, cut at a word."""
    paragraphs = [part for part in markdown.split("\n\n") if part[:1].isalnum() or part[:1] in "`[*"]
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join((paragraphs or [""])[0].split()))
    text = re.sub(r"[`*]", "", text)
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"


def on_page_content(html: str, **_unused: Any) -> str:
    """Give each cell its column's header, which stylesheets show where cells stand below each other."""
    return _TABLE.sub(lambda match: _parts(match[0]) or _labelled(match[0]), html)


def _parts(table: str) -> str:
    """A table of what was tested as lists below the name of each part, that of suites folded; '' for other tables."""
    headers = _HEADER.findall(table)
    if headers[:2] == ["Suite", "Nodes"]:
        return f"<details><summary>All {table.count('<tr>') - 1} suites</summary>{_labelled(table)}</details>"
    if headers != ["Part", "Tested", "Not tested"]:
        return ""
    blocks = []
    for row in _ROW.findall(table)[1:]:
        part, tested, missing = _CELL.findall(row)
        lists = [
            f"<p>{title}</p><ul>{''.join(f'<li>{clause}</li>' for clause in clauses(cell))}</ul>"
            for title, cell in (("Tested", tested), ("Not tested", missing))
            if cell
        ]
        # what opens a list leads nowhere else: its links are the first line of the list
        title, links = re.sub(r"</?a\b[^>]*>", "", part), re.findall(r"<a\b.*?</a>", part)
        lists[:0] = [f"<p>{', '.join(links)}</p>"] if links else []
        blocks.append(f"<details><summary>{title}</summary>{''.join(lists)}</details>")
    return "".join(blocks)


def clauses(html: str) -> list[str]:
    """The parts of a text between semicolons and full stops that are in no tag, code or parentheses."""
    result, depth, start = [], 0, 0
    for mark in re.finditer(r"<code>.*?</code>|<[^>]*>|[()]|(?:;|(?<=[a-z)])\.)\s+(?=\S)", html):
        if mark[0] in "()":
            depth += 1 if mark[0] == "(" else -1
        elif mark[0][0] in ";." and depth == 0:
            result.append(html[start : mark.start()])
            start = mark.end()
    return [*result, html[start:]]


def on_post_page(output: str, **_unused: Any) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    return output.replace(_DIALOG, f'{_DIALOG} aria-label="Search"')


def on_post_template(output_content: str, **_unused: Any) -> str:
    """The same in the page that stands for those that are not there."""
    return on_post_page(output_content)


def _labelled(table: str) -> str:
    headers = [re.sub(r"<[^>]+>", "", header).strip().replace('"', "&quot;") for header in _HEADER.findall(table)]

    def row(match: re.Match[str]) -> str:
        columns = iter(headers)
        # a short word is never broken; the first column keeps each command on a line, unless others had no place then
        cells = re.sub(r"^(<tr>\s*<td[^>]*>)<code>(?=[^<]{45})", r'\1<code class="long">', match[0])
        cells = re.sub(r"<code>(?=[^<]{1,16}</code>)", '<code class="short">', cells)
        return re.sub(r"<td", lambda _cell: f'<td data-label="{next(columns, "")}"', cells)

    return _ROW.sub(row, table)

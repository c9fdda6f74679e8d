"""A table of nodes: CSV or TSV with a header."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from deepopsctl.cluster.builder import Draft, NodeEntry
from deepopsctl.gpus.notation import parse_gpus
from deepopsctl.gpus.spec import join_groups
from deepopsctl.imports.detect import COLUMN_ALIASES, COLUMNS, delimiter_of
from deepopsctl.model.cluster import Gpus, Role
from deepopsctl.text import values
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import check_markers, significant_lines

T = TypeVar("T")


def draft_table(text: str, source: str, problems: Problems) -> Draft:
    """The nodes of a table; options set the roles of rows without one."""
    draft = Draft(source, problems)
    check_markers(text, source, problems)
    rows = _rows(text, source, problems)
    header_line, header = next(rows, (1, []))
    columns = _columns(header, f"{source}:{header_line}", problems)
    if "name" not in columns:
        draft.incomplete = True
        return draft
    for number, cells in rows:
        where = f"{source}:{number}"
        if len(cells) > len(columns):
            problems.add(
                where,
                f"has {len(cells)} cells, the header {len(columns)}",
                "quote cells that hold a delimiter",
            )
            draft.incomplete = True
            continue
        entry = _entry(dict(zip(columns, (cell.strip() for cell in cells), strict=False)), where, draft)
        draft.add(entry)
    return draft


def _rows(text: str, source: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row, without empty rows and comments."""
    _, header = next(iter(significant_lines(text)))
    reader = csv.reader(io.StringIO(text), delimiter=delimiter_of(header), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        problems.add(f"{source}:{reader.line_num}", f"no valid CSV: {error}", "check the quotes of this line")


def _columns(header: list[str], where: str, problems: Problems) -> list[str]:
    words = [cell.strip().lower().replace(" ", "_") for cell in header]
    columns = [COLUMN_ALIASES.get(word, word) for word in words]
    for column in dict.fromkeys(columns):
        if column not in COLUMNS:
            problems.add(where, f"unknown column {column!r}", values.suggest(column, COLUMNS))
        if columns.count(column) > 1:
            problems.add(where, f"the column {column!r} is given twice", "keep one of them")
    if "name" not in columns:
        problems.add(where, "no column `name`", f"name the columns in the first line: {','.join(COLUMNS)}")
    return columns


def _entry(row: Mapping[str, str], where: str, draft: Draft) -> NodeEntry:
    def checked(column: str, read: Callable[[str], T], instead: T) -> T:
        try:
            return read(row.get(column, ""))
        except RefusedError as refusal:
            draft.incomplete = True
            draft.problems.refuse(where, column, refusal)
            return instead

    return NodeEntry(
        where=where,
        names=row.get("name", ""),
        addresses=row.get("address", ""),
        roles=checked("role", _roles, frozenset()),
        port=checked("port", values.parse_port, 0),
        gpus=checked("gpus", lambda count: _gpus(row.get("gpu_type", ""), count), None),
        features=checked("features", lambda text: tuple(map(values.check_feature, _words(text))), ()),
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split("+")] if text else []


def _roles(text: str) -> frozenset[Role]:
    return frozenset(values.parse_role(word) for word in _words(text))


def _gpus(gpu_type: str, count: str) -> Gpus | None:
    """`8` and `h100`; several types are joined by +: `2+2` and `a40+l40s`."""
    if count in ("", "0"):
        if gpu_type:
            raise RefusedError(f"gpu_type {gpu_type} without a number", "say in the column gpus how many a node has")
        return None
    types, counts = _words(gpu_type) or [""], _words(count)
    if len(types) != len(counts):
        raise RefusedError(f"{len(counts)} numbers for {len(types)} types", "write 2+2 and a40+l40s")
    return join_groups([parse_gpus(*pair) for pair in zip(types, counts, strict=True)])

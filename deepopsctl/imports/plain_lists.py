"""Node lists without sections: a hostlist, a hosts file, a table (CSV or TSV with a header)."""

from __future__ import annotations

import csv
import io
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from deepopsctl.cluster.builder import Draft, NodeEntry
from deepopsctl.gpus.notation import parse_gpus
from deepopsctl.gpus.spec import join_groups
from deepopsctl.imports.detect import COLUMN_ALIASES, COLUMNS, delimiter_of, is_ip_address
from deepopsctl.model.cluster import Gpus, Role
from deepopsctl.text import values
from deepopsctl.text.node_sets import is_prefixed, prefixed, shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import check_markers, significant_lines

_HINT = "a line of a hosts file is ADDRESS NAME [ALIAS...]"

T = TypeVar("T")


def draft_hostlist(text: str, source: str, problems: Problems) -> Draft:
    """The nodes of a hostlist; options set their roles."""
    draft = Draft(source, problems)
    check_markers(text, source, problems)
    for number, line in significant_lines(text):
        names, equals, addresses = line.partition("=")
        where, words = f"{source}:{number}", line.split()
        if len(words) == 2 and is_ip_address(words[1]):
            name, address = words
            draft.refuse(
                where, RefusedError(f"{shorten(line)}: = joins a name and its address", f"write {name}={address}")
            )
        elif equals and not addresses.strip():
            draft.refuse(where, RefusedError("no address after =", "write NAMES=ADDRESSES or only NAMES"))
        else:
            draft.add(NodeEntry(where=where, names=names, addresses=addresses))
    return draft


def draft_hosts_file(text: str, source: str, problems: Problems) -> Draft:
    """The nodes of a hosts file, by short names; options set their roles."""
    draft = Draft(source, problems)
    check_markers(text, source, problems)
    versions: dict[str, set[int]] = {}
    for number, line in significant_lines(text):
        where, words = f"{source}:{number}", line.split()
        if is_prefixed(words[0]):
            draft.refuse(where, prefixed(words[0]))
        elif not is_ip_address(words[0]):
            draft.refuse(where, RefusedError(f"{shorten(words[0])!r} is not an IP address", _HINT))
        elif len(words) == 1:
            draft.refuse(where, RefusedError(f"no name for {words[0]}", _HINT))
        elif not _is_local_entry(words[0], words[1]):
            # Slurm knows nodes by their short names
            name, version = words[1].partition(".")[0], ipaddress.ip_address(words[0]).version
            mine = versions.setdefault(name.lower(), set())
            # a name with an IPv4 and an IPv6 address: the first is used
            if not mine or version in mine:
                draft.add(NodeEntry(where=where, names=name, addresses=words[0]))
            mine.add(version)
    return draft


def addresses_by_name(text: str) -> dict[str, str]:
    """The first address of every name in a hosts file, short names and all aliases included, in lower case."""
    addresses: dict[str, str] = {}
    for _, line in significant_lines(text):
        address, *names = line.split()
        if is_ip_address(address) and names and not _is_local_entry(address, names[0]):
            for name in names:
                addresses.setdefault(name.lower(), address)
                addresses.setdefault(name.partition(".")[0].lower(), address)
    return addresses


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


def _is_local_entry(address: str, name: str) -> bool:
    """Whether a line is a default of /etc/hosts, for localhost or IPv6."""
    parsed = ipaddress.ip_address(address)
    default = name.startswith("ip6-") or name == "broadcasthost" or (name == "localhost" and parsed.is_link_local)
    return parsed.is_loopback or parsed.is_multicast or default


def _rows(text: str, source: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row, without empty rows and comments."""
    _, header = next(iter(significant_lines(text)))
    reader = csv.reader(io.StringIO(text), delimiter=delimiter_of(header), strict=True)
    try:
        for cells in reader:
            while cells and not cells[-1].strip():
                # spreadsheets export columns that were once used
                cells.pop()
            if cells and not cells[0].lstrip().startswith("#"):
                yield reader.line_num, cells
    except csv.Error as error:
        problems.add(f"{source}:{reader.line_num}", f"not valid CSV: {error}", "check the quotes of this line")


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

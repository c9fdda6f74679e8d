"""Reads a user's file as text, or reports why it is not text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from deepopsctl.files import read_file
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.values import check_template

# Two hundred times what 10,000 scattered nodes need.
MAX_BYTES = 32 * 1024 * 1024

_COMMENT = re.compile(r"(^|\s)#.*")
_SHEET = ("is a spreadsheet or an archive (xlsx, ods, zip), not text", "save the sheet as CSV in UTF-8, and give that")
# the first bytes of common non-text files, what they are, and what to do
_NO_TEXT = {
    b"PK\x03\x04": _SHEET,
    bytes.fromhex("d0cf11e0a1b11ae1"): ("is an old spreadsheet (xls), not text", _SHEET[1]),
    b"\x1f\x8b": ("is compressed, not text", "unpack it first: gunzip"),
    b"%PDF": ("is a PDF, not text", "write its nodes into a CSV file"),
}
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def read_source(path: Path, name: str, problems: Problems) -> str | None:
    """The text of a file; None where it can't be read (the problems say why)."""
    try:
        if path.is_dir():
            problems.add(name, "is a directory", "give a file")
            return None
        data = read_file(path, MAX_BYTES + 1)
    except OSError as error:
        problems.add(name, f"can't be read: {error.strerror}", "check the path and its permissions")
        return None
    return decode(data, name, problems)


def is_alongside(path: Path, named: Path) -> bool:
    """Whether a file that another one leads to is below the directory of that one, with the links of both followed.

    What comes from elsewhere may name any file of this machine, and its content would be imported or quoted.
    """
    real = path.resolve()
    return any(real.is_relative_to(place) for place in (named.parent.resolve(), named.resolve().parent))


def decode(data: bytes, name: str, problems: Problems) -> str | None:
    """Decode UTF-8, with or without a byte order mark; other encodings are reported with a hint."""
    if len(data) > MAX_BYTES:
        problems.add(name, f"is larger than {MAX_BYTES // 2**20} MiB", "a node list is smaller: check the file")
        return None
    for start, (what, hint) in _NO_TEXT.items():
        if data.startswith(start):
            problems.add(name, what, hint)
            return None
    if data.startswith(_WIDE) or b"\0" in data:
        hint = f"save it as UTF-8: iconv -f UTF-16 -t UTF-8 {name}"
        problems.add(name, "is UTF-16 or binary, not text in UTF-8", hint)
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = f"save it as UTF-8: iconv -f ISO-8859-1 -t UTF-8 {name}"
        problems.add(f"{name}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8", hint)
        return None
    if not text.strip():
        problems.add(
            name,
            "the file is empty",
            "a node list has node names, one expression a line; restore a cluster.yml from git",
        )
        return None
    # one type of line end: lines are counted by it
    return text.replace("\r\n", "\n").replace("\r", "\n")


def significant_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers (from 1) and lines without comments; lines with nothing else are left out."""
    for number, line in enumerate(text.split("\n"), start=1):
        content = _COMMENT.sub("", line).rstrip()
        if content:
            yield number, content


def check_markers(text: str, name: str, problems: Problems) -> None:
    """Report every line with a template marker outside comments, and no other problem of such a line."""
    for number, line in significant_lines(text):
        try:
            check_template(line)
        except RefusedError as refusal:
            problems.refuse_line(f"{name}:{number}", refusal)

"""Programs for nodes: a package of plain files with a launcher. A node needs nothing but Python 3.9."""

from __future__ import annotations

import ast
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ._shared.own_programs import LIBRARY

# what all programs are in, and what several of them use
_HERE = Path(__file__).parent
_SHARED = "_shared"
# an import by a relative name; only it is parsed, as a whole file takes long
_IMPORT = re.compile(r"^[ \t]*(from \.[\w.]* import (?:\([^)]*\)|.+))", re.MULTILINE)
# one fixed time: the same sources make the same bytes
_TIME = (2026, 1, 1, 0, 0, 0)
# -I: root must not import from a user's PYTHONPATH; -B: leave no bytecode files behind
_LAUNCHER = '''#!/usr/bin/python3 -IB
"""Written by deepopsctl; the next deploy overwrites changes made here."""

import sys

sys.path.insert(0, "{library}/{name}")

from node_programs.{place}.{module} import main

sys.exit(main())
'''


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """One file of a program on the node."""

    path: str
    content: str
    mode: str = "0644"


def program(name: str, launcher: str, module: str = "cli") -> tuple[ProgramFile, ...]:
    """A program and its launcher, which is the last: `main` of `module` returns an exit status.

    Each has its own copy of what it shares with others, which may be of another release on the same node.
    """
    text = _LAUNCHER.format(library=LIBRARY, name=name, place=place(name), module=module)
    return (
        *(ProgramFile(f"{LIBRARY}/{name}/{path}", content) for path, content in sources(name)),
        ProgramFile(launcher, text, "0755"),
    )


def place(name: str) -> str:
    """Where a program is in this package, as imports have it: `services.job_mail`."""
    return ".".join(_directory(name).relative_to(_HERE).parts)


def _directory(name: str) -> Path:
    places = list(_HERE.glob(f"*/{name}/__init__.py"))
    if not places:
        raise ValueError(f"no node program {name}")
    return places[0].parent


@cache
def sources(name: str) -> tuple[tuple[str, str], ...]:
    """All files of a program, those that it uses of _shared and other packages that it imports, sorted.

    Each is (path from node_programs/ on, content).
    """
    texts: dict[Path, str] = {}
    missing = set(_files(_directory(name)))
    while missing:
        path = missing.pop()
        texts[path] = path.read_text(encoding="utf-8")
        missing |= {each for each in _imports(path, texts[path]) if each not in texts}
    return tuple(sorted((f"{_HERE.name}/{path.relative_to(_HERE).as_posix()}", text) for path, text in texts.items()))


def _imports(path: Path, text: str) -> Iterator[Path]:
    """Files that come with a file: single modules of _shared, any other package that it imports as a whole."""
    # most files import nothing but their neighbours
    if path.suffix != ".py" or ("from .." not in text and path.parent.name != _SHARED):
        return
    for node in ast.parse("\n".join(_IMPORT.findall(text))).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = path.parents[node.level - 1].joinpath(*(node.module or "").split(".")).relative_to(_HERE).parts
        if parts[0] == _SHARED:
            names = parts[1:] or [each.name for each in node.names]
            yield from (_HERE / _SHARED / f"{each}.py" for each in ("__init__", *names))
        # a program is in a wing; suites have a package of jobs next to the wings
        elif (package := _HERE.joinpath(*parts[: 1 if parts[0].startswith("_") else 2])).is_dir():
            yield from _files(package)


@cache
def _files(package: Path) -> frozenset[Path]:
    """All of a package, and what makes the directories above it packages."""
    above = (parent / "__init__.py" for parent in package.parents if parent.is_relative_to(_HERE))
    return frozenset((*above, *(path for path in package.rglob("*") if path.suffix in (".py", ".ptx"))))


def archive(name: str, main: str = "") -> bytes:
    """A program as an archive, with what `node_program` starts it by; `main` is what `python3 ARCHIVE` runs."""
    # texts of Ansible's have a type of their own, with which a cache finds nothing
    return _packed(str(name), str(main))


@cache
def _packed(name: str, main: str) -> bytes:
    files = {"__main__.py": main} if main else {}
    files["deepopsctl/__init__.py"] = ""
    files |= {f"deepopsctl/{path}": text for path, text in sources(name)}
    for file in ("__init__.py", "program.py"):
        files[f"deepopsctl/{_HERE.name}/{_SHARED}/{file}"] = (_HERE / _SHARED / file).read_text(encoding="utf-8")
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as stream:
        for path, text in files.items():
            stream.writestr(zipfile.ZipInfo(path, _TIME), text, zipfile.ZIP_DEFLATED)
    return raw.getvalue()

"""Programs for nodes: a package of plain files with a launcher. A node needs nothing but Python 3.9."""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from ._shared.own_programs import LIBRARY

# what all programs are in, and what several of them use
_HERE = Path(__file__).parent
_SHARED = "_shared"
# one fixed time: the same sources make the same bytes
_TIME = (2026, 1, 1, 0, 0, 0)
# -I: root must not import from a user's PYTHONPATH; -B: leave no bytecode files behind
_LAUNCHER = '''#!/usr/bin/python3 -IB
"""Written by deepopsctl; the next deploy overwrites changes made here."""

import sys

sys.path.insert(0, "{library}/{name}")

from node_programs.{name}.{module} import main

sys.exit(main())
'''


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """One file of a program on the node."""

    path: str
    content: str
    mode: str = "0644"


def program(package: ModuleType, launcher: str, module: str = "cli") -> tuple[ProgramFile, ...]:
    """A program and its launcher, which is the last: `main` of `module` returns an exit status.

    Each has its own copy of what it shares with others, which may be of another release on the same node.
    """
    name = package.__name__.rpartition(".")[2]
    return (
        *(ProgramFile(f"{LIBRARY}/{name}/{path}", content) for path, content in sources(name)),
        ProgramFile(launcher, _LAUNCHER.format(library=LIBRARY, name=name, module=module), "0755"),
    )


@cache
def sources(name: str) -> tuple[tuple[str, str], ...]:
    """All files of a program, those that it uses of _shared and other packages that it imports, sorted.

    Each is (path from node_programs/ on, content).
    """
    if not (_HERE / name).is_dir():
        raise ValueError(f"no node program {name}")
    texts: dict[Path, str] = {}
    missing = {_HERE / "__init__.py", *_files(name)}
    while missing:
        path = missing.pop()
        texts[path] = path.read_text(encoding="utf-8")
        missing |= {each for each in _imports(path, texts[path]) if each not in texts}
    return tuple(sorted((f"{_HERE.name}/{path.relative_to(_HERE).as_posix()}", text) for path, text in texts.items()))


def _imports(path: Path, text: str) -> Iterator[Path]:
    """Files that come with a file: single modules of _shared, any other package next to the program as a whole."""
    # most files import nothing but their neighbours, and parsing takes time
    if path.suffix != ".py" or ("from .." not in text and path.parent.name != _SHARED):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.level not in (1, 2):
            continue
        package, _, module = (node.module or "").partition(".")
        if node.level == 1:
            package, module = path.parent.name, node.module or ""
        if package != _SHARED:
            yield from _files(package) if node.level == 2 else ()
            continue
        yield _HERE / _SHARED / "__init__.py"
        yield from (_HERE / _SHARED / f"{each}.py" for each in ([module] if module else [a.name for a in node.names]))


def _files(package: str) -> list[Path]:
    return [path for path in (_HERE / package).rglob("*") if path.suffix in (".py", ".ptx")]


@cache
def archive(name: str, main: str = "") -> bytes:
    """A program as an archive, with what `node_program` starts it by; `main` is what `python3 ARCHIVE` runs."""
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

"""Programs for nodes: a package of plain files with a launcher. A node needs nothing but Python 3.9."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

LIBRARY = "/usr/local/lib/deepopsctl"
# what all programs are in, and what several of them use
_HERE = Path(__file__).parent
_SHARED = "_shared"
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
    """All files of a program with what it uses of _shared: (path from node_programs/ on, content), sorted."""
    texts = {path.relative_to(_HERE).as_posix(): _read(path) for path in (_HERE / name).rglob("*.py")}
    shared = {part for text in texts.values() for part in _shared_imports(text)}
    missing = shared.copy()
    while missing:
        part = missing.pop()
        texts[f"{_SHARED}/{part}.py"] = _read(_HERE / _SHARED / f"{part}.py")
        missing |= (new := set(_shared_imports(texts[f"{_SHARED}/{part}.py"], level=1)) - shared)
        shared |= new
    packages = ["__init__.py", *([f"{_SHARED}/__init__.py"] if shared else [])]
    texts |= {path: _read(_HERE / path) for path in packages}
    return tuple(sorted((f"{_HERE.name}/{path}", text) for path, text in texts.items()))


def _shared_imports(text: str, level: int = 2) -> Iterator[str]:
    """Modules of _shared that a file imports: `from .._shared import a` or `from .._shared.a import b`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == level:
            first, _, rest = (node.module or "").partition(".") if level > 1 else (_SHARED, "", node.module or "")
            if first == _SHARED:
                yield from [rest] if rest else [alias.name for alias in node.names]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")

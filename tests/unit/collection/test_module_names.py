"""Programs of nodes are not typed: what they take from each other has to be there all the same."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.node_modules import PACKAGE
from tests.support.paths import ROOT

SOURCES = sorted(
    path for directory in ("modules", "module_utils") for path in (ROOT / "plugins" / directory).rglob("*.py")
)


def imported(tree: ast.Module, package: str) -> dict[str, ModuleType]:
    """The modules of ours that a source imports, by the name that they have there."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        origin = f"{package}.{node.module or ''}".rstrip(".") if node.level else node.module or ""
        if not origin.startswith(("ansible.module_utils", PACKAGE)):
            continue
        module = import_module(origin)
        for alias in node.names:
            if not hasattr(module, alias.name):
                import_module(f"{origin}.{alias.name}")
            value = getattr(module, alias.name)
            if isinstance(value, ModuleType):
                found[alias.asname or alias.name] = value
    return found


def missing(source: str, package: str) -> list[str]:
    """What is taken from a module that has no such thing."""
    tree = ast.parse(source)
    modules = imported(tree, package)
    taken = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    }
    return sorted(f"{name}.{attribute}" for name, attribute in taken if not hasattr(modules[name], attribute))


def package_of(path: Path) -> str:
    below = path.relative_to(ROOT / "plugins").parts[1:-1]
    return ".".join((PACKAGE, *below))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "plugins").as_posix())
def test_what_is_taken_from_another_module_is_there(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8"), package_of(path)) == []


def test_what_is_not_there_is_named() -> None:
    source = f"from {PACKAGE}.node import files\n\nfiles.ensure, files.nothing_like_it\n"

    assert missing(source, PACKAGE) == ["files.nothing_like_it"]

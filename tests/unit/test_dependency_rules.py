"""Who may import what: the shape of the program, kept by a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import deepopsctl

PACKAGE = Path(deepopsctl.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_content" not in path.parts)
CORE = [name for name in MODULES if not name.startswith("cli/") and name != "__main__.py"]
ONLY = {
    "ansible_runner": {"runner.py"},
    "ClusterShell": {"nodelist.py"},
    # in the process that becomes ansible-playbook; and for the vault's own format
    "ansible": {"supervisor.py", "secrets.py"},
}


def tree_of(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"))


def imports(name: str) -> set[str]:
    """Top-level packages that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported: not the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def test_the_rules_see_the_whole_package() -> None:
    assert {"runner.py", "nodelist.py", "cli/deploy.py", "lab/podman.py"} <= set(MODULES)


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_neither_click_nor_rich(name: str) -> None:
    assert not imports(name) & {"click", "rich"}


@pytest.mark.parametrize("name", CORE)
def test_the_core_does_not_import_the_command_line(name: str) -> None:
    found = [
        node.module
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("deepopsctl.cli")
    ]
    assert found == []


@pytest.mark.parametrize(("package", "owners"), ONLY.items())
def test_a_foreign_engine_has_one_importer(package: str, owners: set[str]) -> None:
    assert {name for name in MODULES if package in imports(name)} == owners


@pytest.mark.parametrize("name", CORE)
def test_only_the_command_line_prints_and_exits(name: str) -> None:
    called = {
        node.func.id
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "print" not in called


@pytest.mark.parametrize("name", MODULES)
def test_nothing_reads_the_environment_when_it_is_imported(name: str) -> None:
    read = [node.attr for node in at_import(tree_of(name)) if isinstance(node, ast.Attribute)]
    assert "environ" not in read
    assert "getenv" not in read

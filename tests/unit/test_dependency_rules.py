"""Who may import what: the shape of the program, kept by a test."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import deepopsctl

PACKAGE = Path(deepopsctl.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_content" not in path.parts)
CORE = [name for name in MODULES if not name.startswith("cli/") and name != "__main__.py"]
# runs on nodes, where nothing of ours is installed
GPUCHECK = [name for name in MODULES if name.startswith("gpucheck/")]
# the oldest Python that each of them meets there
ON_NODES = {
    "gpucheck": (3, 8),
    "diskusage": (3, 9),
    "scratchpurge": (3, 9),
    "logcollector": (3, 9),
    "nodemetrics": (3, 9),
    "jobreport": (3, 9),
    "gpumetrics": (3, 9),
    "slurmmetrics": (3, 9),
    "alertdrain": (3, 9),
}
# what is brought to the node beside them
BROUGHT = {"gpumetrics": {"nvitop", "nvitop_exporter", "prometheus_client", "pynvml"}}
OF_NODES = [name for name in MODULES if name.partition("/")[0] in ON_NODES]
ONLY = {
    "ansible_runner": {"runner.py"},
    "ClusterShell": {"nodelist.py"},
    # in the process that becomes ansible-playbook; and for the vault's own format
    "ansible": {"supervisor.py", "secrets.py"},
}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"))


@cache
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
    assert {"runner.py", "nodelist.py", "cli/deploy.py", "lab/podman.py", "gpucheck/nvml.py"} <= set(MODULES)


def test_the_core_imports_neither_click_nor_rich() -> None:
    assert [name for name in CORE if imports(name) & {"click", "rich"}] == []


def test_the_core_does_not_import_the_command_line() -> None:
    found = [
        (name, node.module)
        for name in CORE
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("deepopsctl.cli")
    ]
    assert found == []


@pytest.mark.parametrize(("package", "owners"), ONLY.items())
def test_a_foreign_engine_has_one_importer(package: str, owners: set[str]) -> None:
    assert {name for name in MODULES if package in imports(name)} == owners


def test_only_the_command_line_prints_and_exits() -> None:
    found = [
        (name, node.lineno)
        for name in CORE
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert found == []


def test_nothing_reads_the_environment_when_it_is_imported() -> None:
    found = [
        (name, node.lineno)
        for name in MODULES
        for node in at_import(tree_of(name))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]
    assert found == []


@pytest.mark.parametrize("name", OF_NODES)
def test_what_runs_on_nodes_needs_the_standard_library_and_itself(name: str) -> None:
    package, tree = name.partition("/")[0], tree_of(name)
    relative = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1}
    beyond = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level > 1]
    # its own command line may be named in full: python -m starts it
    known = sys.stdlib_module_names | {f"deepopsctl.{package}.cli"} | BROUGHT.get(package, set())
    foreign = imports_of_others(tree) - known

    assert foreign == set()
    assert beyond == []
    assert {f"{package}/{module}.py" for module in relative if module} <= set(MODULES)


@pytest.mark.parametrize("name", OF_NODES)
def test_what_runs_on_nodes_is_written_for_the_oldest_python_there(name: str) -> None:
    text = (PACKAGE / name).read_text(encoding="utf-8")

    assert ast.parse(text, feature_version=ON_NODES[name.partition("/")[0]])
    # without it, `X | None` and `list[str]` in a signature end the import on an old Python
    assert "from __future__ import annotations" in text or "def " not in text


@pytest.mark.parametrize("name", [name for name in GPUCHECK if name != "gpucheck/cli.py"])
def test_only_the_command_line_of_gpucheck_talks_to_people(name: str) -> None:
    used = {node.attr for node in ast.walk(tree_of(name)) if isinstance(node, ast.Attribute)}

    # stdin is the worker's; what it answers goes through a duplicate that no library can print into
    assert not used & {"stdout", "stderr"}


def imports_of_others(tree: ast.Module) -> set[str]:
    """Modules that are imported by their full name: the top package of foreign ones, all of our own."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return {name if name.startswith("deepopsctl") else name.partition(".")[0] for name in found}

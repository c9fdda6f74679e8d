"""Rules about imports that import-linter (pyproject.toml) has no contract for."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import deepopsctl
from tests.support.paths import ROOT

PACKAGE = Path(deepopsctl.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_content" not in path.parts)
CORE = [name for name in MODULES if not name.startswith("cli/") and name != "__main__.py"]
PROGRAMS = "node_programs/"
# these run on nodes, where nothing of ours is installed
ON_NODES = [name for name in MODULES if name.startswith(PROGRAMS) and name.count("/") > 1]
WINGS = ("commands", "operations", "services", "suites")
GPU_CHECK = [name for name in ON_NODES if name.startswith("node_programs/suites/gpu_check/")]
# what is brought to the node with a program
BROUGHT = {
    "services/gpu_metrics": {"nvitop", "nvitop_exporter", "prometheus_client", "pynvml"},
    "services/web": {
        "cryptography",
        "jupyter_remote_desktop_proxy",
        "jupyter_server",
        "jupyter_server_proxy",
        "jupyterhub",
        "jwt",
        "oauthenticator",
        "tornado",
        "traitlets",
    },
}
# in the process that becomes ansible-playbook; and for the vault's own format
ANSIBLE = {"run/supervisor.py", "cluster/secrets.py"}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"))


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported: not the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def program_of(name: str) -> list[str]:
    """The program's place in node_programs/: wing and name; _shared and _slurm_jobs are in no wing."""
    parts = name.split("/")[1:]
    return parts[:2] if parts[0] in WINGS else parts[:1]


def test_the_rules_see_the_whole_package() -> None:
    assert {
        "run/runner.py",
        "text/node_sets.py",
        "cli/commands/deploy.py",
        "node_programs/suites/gpu_check/nvml.py",
    } <= set(MODULES)


def test_ansible_itself_is_imported_in_two_places() -> None:
    assert {name for name in MODULES if "ansible" in imported(tree_of(name))} == ANSIBLE


def test_only_the_command_line_prints_and_exits() -> None:
    result = [
        (name, node.lineno)
        for name in CORE
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert result == []


# of commands of several runs: the lock, pauses (of Slurm, of the lock, of a host that boots), why they stopped
ONE_PLACE = {
    "cluster_lock": {"nodes/workflow.py"},
    "sleep": {"nodes/wait_for_jobs.py", "nodes/workflow.py", "nodes/host_keys.py"},
    "stopped": {"nodes/workflow.py"},
}


@pytest.mark.parametrize("name", ONE_PLACE)
def test_commands_of_several_runs_have_one_frame_and_one_wait(name: str) -> None:
    places = {
        module
        for module in CORE
        if module.startswith(("nodes/", "lifecycle/"))
        for node in ast.walk(tree_of(module))
        if (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
        # others may read it
        if name != "stopped" or isinstance(node.ctx, ast.Store)
    }
    assert places == ONE_PLACE[name]


def test_nothing_reads_the_environment_when_it_is_imported() -> None:
    result = [
        (name, node.lineno)
        for name in MODULES
        for node in at_import(tree_of(name))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]
    assert result == []


@pytest.mark.parametrize("name", ON_NODES)
def test_what_runs_on_nodes_needs_the_standard_library_and_itself(name: str) -> None:
    parts, tree = program_of(name), tree_of(name)
    program = "/".join(parts)
    relative = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1}
    # which programs may import which packages beside them is import-linter's
    beyond = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.level > name.count("/")]
    # its own command line may be named in full: python -m starts it
    known = sys.stdlib_module_names | {f"deepopsctl.node_programs.{'.'.join(parts)}.cli"} | BROUGHT.get(program, set())
    foreign = imported(tree) - known

    assert foreign == set()
    assert beyond == []
    alongside = {f"{name.rpartition('/')[0]}/{module.replace('.', '/')}" for module in relative if module}
    assert {module for module in alongside if not {f"{module}.py", f"{module}/__init__.py"} & set(MODULES)} == set()


@pytest.mark.parametrize("name", ON_NODES)
def test_what_runs_on_nodes_is_written_for_the_oldest_python_there(name: str) -> None:
    text = (PACKAGE / name).read_text(encoding="utf-8")

    assert ast.parse(text, feature_version=(3, 8) if name in GPU_CHECK else (3, 9))
    # without it, `X | None` and `list[str]` in a signature end the import on an old Python
    assert "from __future__ import annotations" in text or "def " not in text


OLDEST = [
    *(PACKAGE / name for name in GPU_CHECK),
    *(PACKAGE / "node_programs" / "_shared").glob("*.py"),
    *(ROOT / "plugins" / "modules").rglob("*.py"),
    *(ROOT / "plugins" / "module_utils").rglob("*.py"),
]


def test_no_import_evaluates_a_type_that_python_3_8_does_not_know() -> None:
    """Python 3.8 has no `dict[...]`, and no `Mapping[...]` of collections.abc, outside of annotations."""
    matches = []
    for path in OLDEST:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        generic = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
                   and node.module == "collections.abc" for alias in node.names}  # fmt: skip
        generic |= {"dict", "list", "tuple", "set", "frozenset", "type"}
        values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
        values += [base for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases]
        evaluated = (node for value in values for node in ast.walk(value) if isinstance(node, ast.Subscript))
        matches += [
            (path.name, node.lineno)
            for node in evaluated
            if isinstance(node.value, ast.Name) and node.value.id in generic
        ]
    assert matches == []


@pytest.mark.parametrize("name", [name for name in GPU_CHECK if not name.endswith("/cli.py")])
def test_only_the_command_line_of_gpu_check_talks_to_people(name: str) -> None:
    used = {node.attr for node in ast.walk(tree_of(name)) if isinstance(node, ast.Attribute)}

    # stdin is the worker's; what it answers goes through a duplicate that no library can print into
    assert not used & {"stdout", "stderr"}


def imported(tree: ast.Module) -> set[str]:
    """Modules that are imported by their full name: the top package of foreign ones, all of our own."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name if name.startswith("deepopsctl") else name.partition(".")[0] for name in names}

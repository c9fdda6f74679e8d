"""What Python 3.8 can't evaluate: `from __future__ import annotations` makes annotations free, but not aliases."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

# modules of the collection run on nodes, and so does what gpu_check imports
CODE = ("plugins/module_utils", "plugins/modules", "deepopsctl/node_programs/suites/gpu_check")
SHARED = [ROOT / "deepopsctl/node_programs/_shared" / name for name in ("checks.py", "command.py")]
BUILT_IN = {"dict", "frozenset", "list", "set", "tuple", "type"}


def too_new(text: str) -> Iterator[str]:
    """Generics of builtins and of collections.abc that are evaluated."""
    nodes = list(ast.walk(ast.parse(text)))
    sources = (node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "collections.abc")
    names = BUILT_IN | {alias.asname or alias.name for node in sources for alias in node.names}
    fields = (getattr(node, field, None) for node in nodes for field in ("annotation", "returns"))
    free = {id(inner) for field in fields if field is not None for inner in ast.walk(field)}
    for node in (node for node in nodes if isinstance(node, ast.Subscript) and id(node) not in free):
        if isinstance(node.value, ast.Name) and node.value.id in names:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("directory", CODE)
def test_python_3_8_reads_what_runs_on_nodes(directory: str) -> None:
    paths = [path for path in (*(ROOT / directory).rglob("*.py"), *SHARED) if not path.is_symlink()]
    faults = {str(path): list(too_new(path.read_text(encoding="utf-8"))) for path in paths}

    assert {path: lines for path, lines in faults.items() if lines} == {}
    assert len(paths) > 10

"""Programs as files on a node: complete, and runnable by the launcher alone."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import zipfile
from base64 import b64encode
from pathlib import Path

import pytest

from deepopsctl.node_programs import shipping
from deepopsctl.node_programs._shared.archive import loader
from tests.support.files import write_files

# gpu_metrics needs nvitop-exporter, which a deploy unpacks on the node
PROGRAMS = [
    *("alert_drain", "disk_usage", "job_report", "log_collector"),
    *("node_metrics", "scratch_purge", "slurm_metrics"),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_module_of_a_program_can_be_imported_on_a_node(name: str, tmp_path: Path) -> None:
    files = write_files(tmp_path, dict(shipping.sources(name)))
    programs = [path for path, _ in shipping.sources(name) if f"/{name}/" in path]
    modules = [path.removesuffix(".py").replace("/", ".") for path in programs if "__init__" not in path]

    code = f"import sys; sys.path.insert(0, {str(files)!r}); import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-IBS", "-c", code], capture_output=True, text=True, cwd=tmp_path)

    assert modules
    assert (done.returncode, done.stderr) == (0, "")


def test_every_import_of_another_file_is_seen_without_parsing_a_whole_file() -> None:
    def imported(text: str) -> set[tuple[object, ...]]:
        relative = (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom) and each.level)
        return {(each.level, each.module, *(name.name for name in each.names)) for each in relative}

    texts = [path.read_text() for path in Path(shipping.__file__).parent.rglob("*.py")]

    assert [imported("\n".join(shipping._IMPORT.findall(text))) for text in texts] == list(map(imported, texts))


def test_a_program_brings_what_it_shares_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "node_programs"
    files = {
        **dict.fromkeys(("__init__.py", "a_wing/__init__.py", "b_wing/__init__.py", "c_wing/__init__.py"), ""),
        **dict.fromkeys(("a_wing/first/__init__.py", "b_wing/second/__init__.py", "b_wing/second/cli.py"), ""),
        **dict.fromkeys(("c_wing/third/__init__.py", "c_wing/third/part/__init__.py", "c_wing/third/part/x.py"), ""),
        **dict.fromkeys(("_shared/__init__.py", "_shared/d.py", "shipping.py"), ""),
        "a_wing/first/cli.py": "from ..._shared import a\nfrom ..._shared.b import x\nfrom . import other\n",
        "c_wing/third/cli.py": "from ...a_wing.first.cli import x\nfrom ...shipping import y\n",
        "_shared/a.py": "from . import c\n",
        "_shared/b.py": "from .c import y\n",
        "_shared/c.py": "from . import a\n",
    }
    write_files(package, files)
    monkeypatch.setattr(shipping, "_HERE", package)
    shipping.sources.cache_clear()

    first = {path.partition("/")[2] for path, _ in shipping.sources("first")}
    second = {path.partition("/")[2] for path, _ in shipping.sources("second")}
    third = {path.partition("/")[2] for path, _ in shipping.sources("third")}

    shipping.sources.cache_clear()
    assert first == {path for path in files if path.startswith(("_shared/", "a_wing/", "__init__"))} - {"_shared/d.py"}
    assert second == {"__init__.py", "b_wing/__init__.py", "b_wing/second/__init__.py", "b_wing/second/cli.py"}
    assert third == first | {path for path in files if path.startswith("c_wing/")}


@pytest.mark.parametrize("name", ["burn_in", "node_doctor", "validate_gpu", "validate_smoke"])
def test_every_module_of_an_archive_can_be_imported_from_memory(name: str, tmp_path: Path) -> None:
    archive = shipping.archive(name)
    with zipfile.ZipFile(io.BytesIO(archive)) as stream:
        files = stream.namelist()
    modules = [path.removesuffix(".py").replace("/", ".") for path in files if path.endswith(".py")]
    wanted = [module for module in modules if "__" not in module]
    code = f"from importlib import import_module\nfor name in {wanted!r}: import_module(name)\ndef main(): pass"
    start = loader("_shared.program", "sys.stdin.buffer.readline()", "[]", code)

    done = subprocess.run(
        [sys.executable, "-I", "-c", start], input=b64encode(archive) + b"\n", capture_output=True, cwd=tmp_path
    )

    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert f"deepopsctl.node_programs.{shipping.place(name)}.main" in wanted


def test_a_suite_brings_the_whole_program_that_it_measures_with() -> None:
    with zipfile.ZipFile(io.BytesIO(shipping.archive("validate_gpu"))) as stream:
        files = set(stream.namelist())

    assert {
        "deepopsctl/node_programs/suites/gpu_check/cli.py",
        "deepopsctl/node_programs/suites/gpu_check/kernels/fma.ptx",
    } <= files
    assert "deepopsctl/node_programs/suites/validate_smoke/main.py" not in files


def test_the_same_sources_make_the_same_archive() -> None:
    first = shipping.archive("validate_smoke")
    shipping._packed.cache_clear()

    assert shipping.archive("validate_smoke") == first

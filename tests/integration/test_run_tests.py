"""What `make test` makes of failures: only lab modules get a second try, and it must be able to fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSES = "def test_it(): pass\n"
FAILS = "def test_it(): assert False\n"
FAILS_ONCE = """
from pathlib import Path
def test_it():
    mark = Path(__file__).with_suffix(".tried")
    tried = mark.exists()
    mark.touch()
    assert tried
"""


def run(folder: Path, tests: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The script in a project of its own with these test files."""
    for name in ("scripts/run-tests", "tests/conftest.py"):
        (folder / name).parent.mkdir()
        shutil.copy(ROOT / name, folder / name)
    for name, text in tests.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    script = str(folder / "scripts" / "run-tests")
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)


def test_tests_that_pass_run_once(tmp_path: Path) -> None:
    done = run(tmp_path, {"unit/test_a.py": PASSES, "lab/test_b.py": PASSES})

    assert done.returncode == 0
    assert "once more" not in done.stdout


def test_what_needs_no_machines_comes_first(tmp_path: Path) -> None:
    done = run(tmp_path, {"lab/test_a.py": PASSES, "unit/test_b.py": PASSES, "vm/test_c.py": PASSES})

    where = [done.stdout.index(f"{module}::test_it") for module in ("unit/test_b.py", "lab/test_a.py", "vm/test_c.py")]
    assert where == sorted(where)


def test_a_lab_module_that_failed_runs_again_and_that_is_said(tmp_path: Path) -> None:
    done = run(tmp_path, {"unit/test_a.py": PASSES, "lab/test_b.py": FAILS_ONCE})

    assert done.returncode == 0
    assert "    tests/lab/test_b.py::test_it\nonce more, on fresh labs" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("===")


@pytest.mark.parametrize(
    "tests",
    [
        {"lab/test_b.py": FAILS},
        {"unit/test_a.py": FAILS_ONCE},
        {"unit/test_a.py": FAILS_ONCE, "lab/test_b.py": FAILS_ONCE},
        {f"lab/test_{letter}.py": FAILS_ONCE for letter in "abcd"},
    ],
    ids=["a-fault-of-ours", "a-unit-test", "both", "many-labs"],
)
def test_nothing_else_is_forgiven(tmp_path: Path, tests: dict[str, str]) -> None:
    assert run(tmp_path, tests).returncode == 1

"""What `make test` makes of failures: only lab modules get a second try, and it must be able to fail."""

from __future__ import annotations

import os
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
# passes only where the other one is under way at the same time
MEETS = """
import time
from pathlib import Path
def test_it():
    Path(__file__).with_suffix(".here").touch()
    other, deadline = Path(__file__).parents[1] / "{}.here", time.monotonic() + 300
    while not other.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
"""
FOLDERS = ("integration", "roles", "unit", "lab", "vm", "elsewhere")
SMALL_LABS = tuple(f"lab/test_{name}.py" for name in ("cuda", "lab_nodes", "nvidia", "run_login", "ssh_setup"))
# every run of pytest finds something to do
TESTS = dict.fromkeys([*(f"{folder}/test_it.py" for folder in FOLDERS), *SMALL_LABS], PASSES)


def run(folder: Path, tests: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script in a project of its own with these test files."""
    for name in ("scripts/run-tests", "tests/conftest.py"):
        (folder / name).parent.mkdir()
        shutil.copy(ROOT / name, folder / name)
    for name, text in (TESTS | tests).items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(folder / "scripts" / "run-tests"), *arguments],
        # what plugins are installed is nothing to these tests, and takes most of their time
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_tests_that_pass_run_once_whatever_folder_they_are_in(tmp_path: Path) -> None:
    done = run(tmp_path, {})

    assert done.returncode == 0, done.stdout
    assert [done.stdout.count(f"tests/{name}::test_it PASSED") for name in TESTS] == [1] * len(TESTS)
    assert "once more" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("===")


def test_tests_run_beside_each_other_but_for_clusters(tmp_path: Path) -> None:
    pairs = {
        "integration/test_it": "lab/test_ssh_setup",
        "lab/test_cuda": "lab/test_run_login",
        "unit/test_it": "vm/test_it",
        "lab/test_it": "vm/test_later",
    }
    meetings = {
        f"{one}.py": MEETS.format(other) for one, other in (*pairs.items(), *((b, a) for a, b in pairs.items()))
    }
    done = run(tmp_path, meetings)

    assert done.returncode == 0, done.stdout


def test_clusters_come_when_all_labs_without_slurm_have_ended(tmp_path: Path) -> None:
    late = "import time\nfrom pathlib import Path\n"
    late += "def test_it(): time.sleep(5); Path(__file__).with_suffix('.ended').touch()\n"
    looks = "from pathlib import Path\n"
    looks += "def test_it(): assert Path(__file__).with_name('test_ssh_setup.ended').exists()\n"

    assert run(tmp_path, {"lab/test_ssh_setup.py": late, "lab/test_it.py": looks}).returncode == 0


def test_no_lab_is_made_where_something_else_failed(tmp_path: Path) -> None:
    done = run(tmp_path, {"unit/test_it.py": FAILS})

    assert done.returncode == 1
    assert "tests/lab/test_it.py" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("===")


def test_modules_with_machines_that_failed_run_again_and_that_is_said(tmp_path: Path) -> None:
    modules = ["lab/test_it.py", "lab/test_ssh_setup.py", "vm/test_it.py"]
    done = run(tmp_path, dict.fromkeys(modules, FAILS_ONCE))

    assert done.returncode == 0, done.stdout
    named = "".join(f"    tests/{module}::test_it\n" for module in modules)
    assert f"{named}once more, on fresh labs" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("===")


def test_what_is_asked_for_is_one_run_and_has_a_second_try_too(tmp_path: Path) -> None:
    done = run(tmp_path, {"lab/test_it.py": FAILS_ONCE}, "tests/unit", "tests/lab")

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("test session starts") == 2
    assert "once more, on fresh labs" in done.stdout


@pytest.mark.parametrize(
    "tests",
    [
        {"lab/test_it.py": FAILS},
        {"unit/test_it.py": FAILS_ONCE},
        {"unit/test_it.py": FAILS_ONCE, "lab/test_it.py": FAILS_ONCE},
        {"elsewhere/test_it.py": FAILS_ONCE, "lab/test_it.py": FAILS_ONCE},
        {f"lab/test_{letter}.py": FAILS_ONCE for letter in "abcd"},
    ],
    ids=["a-fault-of-ours", "a-unit-test", "both", "not-a-lab", "many-labs"],
)
def test_nothing_else_is_forgiven(tmp_path: Path, tests: dict[str, str]) -> None:
    assert run(tmp_path, tests).returncode == 1

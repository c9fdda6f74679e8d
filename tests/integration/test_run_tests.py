"""What `make test` makes of failures, and where it has which tests: only labs get a second try, and may fail in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

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
FAILED = "::test_it FAILED"
# by these a make knows that another one started it, and calls itself make[1]
OF_MAKE = ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
# passes only where the other one has started before this one's end
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
DIRECTORIES = ("integration", "integration/monitoring", "roles", "unit", "lab", "vm", "elsewhere")
# every run of pytest finds something to do
TESTS = dict.fromkeys([f"{directory}/test_it.py" for directory in DIRECTORIES], PASSES)


def marked(mark: str, text: str) -> str:
    """A module all of whose tests have a mark."""
    return f"import pytest\npytestmark = pytest.mark.{mark}\n{text}"


def run(directory: Path, tests: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script in a project of its own with these test files."""
    for name in ("scripts/run-tests", "scripts/testruns.py", "tests/conftest.py"):
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    for name, text in (TESTS | tests).items():
        path = directory / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    return subprocess.run(
        [sys.executable, str(directory / "scripts" / "run-tests"), *arguments],
        # what plugins are installed is nothing to these tests, and costs most of their time
        env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_tests_that_pass_run_once_whatever_their_place(tmp_path: Path) -> None:
    both = "import pytest\ndef test_own(): pass\n@pytest.mark.shared_cluster\ndef test_shared(): pass\n"
    done = run(
        tmp_path,
        {
            "lab/test_both.py": both,
            "lab/test_shared.py": marked("shared_cluster", PASSES),
            "lab/test_battered.py": marked("battered_cluster", PASSES),
            "lab/test_small.py": marked("without_slurm", PASSES),
        },
    )

    assert done.returncode == 0, done.stdout
    ended = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("%]")]
    names = {f"tests/lab/test_{name}.py::test_it" for name in ("shared", "battered", "small")}
    names |= {f"tests/lab/test_both.py::test_{name}" for name in ("own", "shared")}
    assert sorted(ended) == sorted(names | {f"tests/{name}::test_it" for name in TESTS})
    assert "once more" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith(f"{'=' * 9}")
    assert f"{len(ended)} passed in" in done.stdout.rstrip().splitlines()[-1]
    used = dict(re.findall(r"^ ?\d+:\d\d to .* (\d+\.\d) s (\S+): ", done.stdout, re.MULTILINE))
    assert used
    assert "0.0" not in used


def test_tests_run_in_parallel_small_labs_first_then_clusters_and_a_virtual_machine(tmp_path: Path) -> None:
    # none of a circle ends before the next of it has started
    circles = [
        ("integration/test_it", "unit/test_it", "lab/test_small"),
        ("lab/test_it", "lab/test_shared", "vm/test_it"),
    ]
    following = {one: other for circle in circles for one, other in zip(circle, (*circle[1:], circle[0]), strict=True)}
    meetings = {f"{one}.py": MEETS.format(other) for one, other in following.items()}
    for name, mark in {"lab/test_small.py": "without_slurm", "lab/test_shared.py": "shared_cluster"}.items():
        meetings[name] = marked(mark, meetings[name])
    done = run(tmp_path, meetings)

    assert done.returncode == 0, done.stdout


def test_no_more_than_two_labs_are_up_at_a_time(tmp_path: Path) -> None:
    counts = """
import time
from pathlib import Path
def test_it():
    here = Path(__file__).with_suffix(".here")
    here.touch()
    time.sleep(1)
    assert len(list(here.parent.glob("*.here"))) <= 2
    here.unlink()
"""
    small = {f"lab/test_small{number}.py": marked("without_slurm", counts) for number in range(3)}
    done = run(tmp_path, small | {f"lab/test_own{number}.py": counts for number in range(2)})

    assert done.returncode == 0, done.stdout


def test_a_target_of_the_makefile_runs_in_parallel_and_its_failure_counts(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("good:\n\t@echo all is good\nbad:\n\t@echo a fault; false\n")

    good = run(tmp_path, {}, "--make", "good")
    assert good.returncode == 0, good.stdout
    assert "all is good" in good.stdout

    bad = run(tmp_path, {}, "--make", "bad", "good")
    assert bad.returncode != 0
    assert "a fault" in bad.stdout
    assert "tests/lab/test_it.py" not in bad.stdout


def test_tests_that_can_not_be_collected_fail_with_the_reason(tmp_path: Path) -> None:
    done = run(tmp_path, {"lab/test_it.py": "import nothing_of_that_name\n"})

    assert done.returncode not in (0, 5)
    assert "nothing_of_that_name" in done.stdout + done.stderr


def test_thorough_tests_are_left_out_and_named_unless_they_are_asked_for(tmp_path: Path) -> None:
    mixed = f"{marked('shared_cluster', FAILS_ONCE)}@pytest.mark.thorough\ndef test_long(): assert False\n"
    tests = {"lab/test_mixed.py": mixed, "lab/test_long.py": marked("thorough", FAILS)}
    done = run(tmp_path, tests)

    # not at the second try either
    assert done.returncode == 0, done.stdout
    named = "tests/lab/test_long.py::test_it\ntests/lab/test_mixed.py::test_long\n"
    assert f"left out, 2 thorough tests; `make test-thorough` runs them:\n\n{named}" in done.stdout
    assert ", 2 deselected in" in done.stdout

    asked = run(tmp_path, tests, "-m", "thorough", "tests")

    assert asked.returncode == 1
    assert "tests/lab/test_mixed.py::test_long FAILED" in asked.stdout


def test_a_thorough_test_without_a_lab_runs_all_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, {"unit/test_it.py": marked("thorough", FAILS)})

    assert done.returncode == 1


def test_no_lab_is_made_where_something_else_failed(tmp_path: Path) -> None:
    done = run(tmp_path, {"unit/test_it.py": FAILS})

    assert done.returncode == 1
    assert "tests/lab/test_it.py" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("===")


def test_what_failed_is_named_at_the_very_end(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("bad:\n\t@echo a fault; false\n")
    done = run(tmp_path, {"unit/test_it.py": FAILS, "integration/test_it.py": FAILS}, "--make", "bad")

    named = done.stdout.rpartition("\nfailed:\n\n")[2].splitlines()
    assert [line.partition(" - ")[0] for line in named if line][:-1] == [
        "bad: make: *** [Makefile:2: bad] Error 1",
        "FAILED tests/integration/test_it.py::test_it",
        "FAILED tests/unit/test_it.py::test_it",
    ]


def test_modules_with_a_lab_that_failed_run_again_and_that_is_reported(tmp_path: Path) -> None:
    modules = ["lab/test_it.py", "lab/test_small.py", "vm/test_it.py"]
    others = {
        "lab/test_small.py": marked("without_slurm", FAILS_ONCE),
        # it ends after its namesake, and its output is not mixed up with the other's
        "elsewhere/test_it.py": "import time\ndef test_it(): time.sleep(3)\n",
    }
    done = run(tmp_path, dict.fromkeys(modules, FAILS_ONCE) | others)

    assert done.returncode == 0, done.stdout
    named = "".join(f"    tests/{module}::test_it\n" for module in modules)
    assert f"{named}once more, on fresh labs" in done.stdout, done.stdout
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
        {f"lab/test_{letter}.py": FAILS_ONCE for letter in "abcde"},
    ],
    ids=["a-fault-of-ours", "a-unit-test", "both", "not-a-lab", "many-labs"],
)
def test_nothing_else_is_forgiven(tmp_path: Path, tests: dict[str, str]) -> None:
    # in one run, which is quicker: what becomes of its failures is the same
    done = run(tmp_path, tests, "tests")

    assert done.returncode == 1
    assert {f"tests/{name}" for name in tests} == {
        line.partition("::")[0] for line in done.stdout.splitlines() if FAILED in line
    }

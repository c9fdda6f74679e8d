"""Which tests `make test` runs and where, what it makes of failures, and the table that `make test-all` writes."""

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
GATE = "every_change"


def marked(text: str, *marks: str) -> str:
    """A module all of whose tests have these marks."""
    return f"import pytest\npytestmark = [{', '.join(f'pytest.mark.{mark}' for mark in marks)}]\n{text}"


# every run of pytest finds something to do
TESTS = {f"{directory}/test_it.py": PASSES for directory in DIRECTORIES} | {"lab/test_it.py": marked(PASSES, GATE)}
MAKEFILE = "lint types docs sanity site lowest mutation qemu test-vm:\n\t@echo all is good\n"


def run(
    directory: Path, tests: dict[str, str], *arguments: str, makefile: str = ""
) -> subprocess.CompletedProcess[str]:
    """The script in a project of its own with these test files, and targets of the Makefile before those that pass."""
    for name in ("scripts/run-tests", "scripts/testruns.py", "scripts/testpage.py", "tests/conftest.py"):
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    for name, text in (TESTS | tests).items():
        path = directory / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (directory / "Makefile").write_text(makefile + MAKEFILE, encoding="utf-8")
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


def ended(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The tests with a lab that ran, and the modules without, each as often as it did."""
    return sorted(line.split()[0] for line in done.stdout.splitlines() if line.endswith("%]"))


def shown(name: str) -> str:
    """What is shown of a module with one test."""
    return f"tests/{name}" if name.startswith(("integration", "roles", "unit", "vm")) else f"tests/{name}::test_it"


def test_the_gate_runs_each_of_its_tests_once_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    both = f"import pytest\n@pytest.mark.{GATE}\ndef test_own(): pass\n"
    both += (
        f"@pytest.mark.{GATE}\n@pytest.mark.shared_cluster\ndef test_shared(): pass\ndef test_other(): assert False\n"
    )
    done = run(
        tmp_path,
        {
            "lab/test_both.py": both,
            "lab/test_battered.py": marked(PASSES, "battered_cluster", GATE),
            "lab/test_long.py": marked(FAILS, "shared_cluster"),
            "lab/test_small.py": marked(FAILS, "without_slurm"),
            "vm/test_it.py": FAILS,
        },
    )

    assert done.returncode == 0, done.stdout
    names = {"lab/test_battered.py::test_it", "lab/test_both.py::test_own", "lab/test_both.py::test_shared"}
    names = {f"tests/{name}" for name in names} | {shown(name) for name in TESTS if not name.startswith("vm/")}
    assert ended(done) == sorted(names)
    left_out = done.stdout.partition("left out, 3 tests of labs")[2].splitlines()[2:5]
    assert left_out == [f"   1 tests/lab/test_{name}.py" for name in ("both", "long", "small")]
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("=" * 9)
    assert f"{len(names)} passed, 3 deselected in" in last
    used = {name: s for s, name in re.findall(r"^ ?\d+:\d\d to .* (\d+\.\d) s (\S+): ", done.stdout, re.MULTILINE)}
    assert {"lint", "unit", "cluster", "both"} <= used.keys()
    assert used["unit"] != "0.0"


def test_all_that_gates_a_change_runs_in_parallel_with_two_labs(tmp_path: Path) -> None:
    # none of a circle ends before the next of it has started
    circle = ("integration/test_it", "unit/test_it", "lab/test_it", "lab/test_shared")
    following = dict(zip(circle, (*circle[1:], circle[0]), strict=True))
    meetings = {f"{one}.py": MEETS.format(other) for one, other in following.items()}
    meetings["lab/test_it.py"] = marked(meetings["lab/test_it.py"], GATE)
    meetings["lab/test_shared.py"] = marked(meetings["lab/test_shared.py"], "shared_cluster", GATE)
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
    done = run(tmp_path, {f"lab/test_own{number}.py": marked(counts, GATE) for number in range(3)})

    assert done.returncode == 0, done.stdout


def test_a_failure_without_a_lab_ends_the_labs_and_the_other_checks_go_on(tmp_path: Path) -> None:
    waits = """
import time
from pathlib import Path
import pytest
@pytest.fixture
def lab():
    Path(__file__).with_name("started").touch()
    yield
    Path(__file__).with_name("removed").touch()
def test_it(lab): time.sleep(300)
def test_other(): assert False
"""
    slow = "import time\ndef test_it(): time.sleep(3)\n"
    tests = {"lab/test_it.py": marked(waits, GATE), "unit/test_it.py": slow}
    done = run(
        tmp_path, tests, makefile="bad:\n\t@until [ -e tests/lab/started ]; do sleep 0.1; done; false\nlint: bad\n"
    )

    assert done.returncode != 0
    assert (tmp_path / "tests" / "lab" / "removed").exists()
    assert "it: stopped, as another one failed" in done.stdout
    assert shown("unit/test_it.py") in ended(done)
    assert "tests/lab/test_it.py::test_other" not in done.stdout
    assert done.stdout.rpartition("\nfailed:\n\n")[2].splitlines()[:5] == [
        "lint: make: *** [Makefile:2: bad] Error 1",
        "",
        "only these again:",
        "",
        "make lint",
    ]


def test_the_last_lines_name_what_failed_and_the_command_that_runs_only_that(tmp_path: Path) -> None:
    many = "".join(f"def test_{number}(): assert False\n" for number in range(30))
    shared = marked(FAILS, "shared_cluster", GATE)
    done = run(tmp_path, {"unit/test_it.py": FAILS, "integration/test_it.py": many, "lab/test_shared.py": shared})

    assert done.returncode == 1
    last = done.stdout.splitlines()[-20:]
    named = "\n".join(last).partition("failed:\n\n")[2].splitlines()
    assert named[0].startswith("FAILED tests/integration/test_it.py::test_")
    assert re.fullmatch(r"and 2\d more, above", named[5])
    commands = {".venv/bin/pytest tests/integration/test_it.py", ".venv/bin/pytest tests/unit/test_it.py::test_it"}
    assert commands <= {*named}


PAGE = """# What was tested
<!-- suites: written by `make test-all` -->
| Suite |
|---|
| other | Debian 13 | 4 | 10 | 2026-01-01 | 00000000 | a computer |
| gone | Debian 13 | 4 | 10 | 2026-01-01 | 00000000 | a computer |
<!-- end of suites -->
The end.
"""


def rows(page: Path) -> dict[str, list[str]]:
    """The cells of the table below its header, by suite."""
    lines = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines[1:]}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The table of a project under version control."""
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "testing.md"
    page.write_text(PAGE)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "docs"), (*who, "commit", "-q", "-m", "x")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return page


def test_a_suite_alone_updates_its_own_row(tmp_path: Path, page: Path) -> None:
    labs = {"lab/test_it.py": PASSES + "def test_no(): assert False\n", "lab/test_other.py": PASSES}
    done = run(tmp_path, labs, "--all", "it", "sanity")

    assert done.returncode == 1, done.stdout
    assert ended(done) == ["tests/lab/test_it.py::test_it", "tests/lab/test_it.py::test_no"]
    table = rows(page)
    assert list(table) == ["it", "other", "sanity"]
    assert table["it"][:2] == ["Debian 13", "1, 1 failed"]
    assert re.fullmatch(r"\d+ \d{4}-\d\d-\d\d [0-9a-f]{8} \d+ cores, \d+ GiB", " ".join(table["it"][2:]))
    assert table["other"] == ["Debian 13", "4", "10", "2026-01-01", "00000000", "a computer"]
    assert table["sanity"][1] == "yes"
    assert page.read_text().startswith("# What was tested\n")
    assert page.read_text().endswith("The end.\n")


def test_every_suite_runs_what_the_gate_leaves_out_too(tmp_path: Path, page: Path) -> None:
    on_sid = 'import pytest\n@pytest.mark.parametrize("os", ["sid"])\ndef test_it(os): pass\n'
    tests = {
        "lab/test_long.py": PASSES,
        "lab/test_sid.py": on_sid,
        "lab/test_shared.py": marked(PASSES, "shared_cluster"),
    }
    done = run(tmp_path, tests, "--all")

    assert done.returncode == 0, done.stdout
    table = rows(page)
    assert {
        "shared",
        "long",
        "sid",
        "it",
        "unit",
        "integration",
        "sanity",
        "site",
        "lowest",
        "mutation",
        "qemu",
        "vm-debian12",
    } <= {*table}
    assert table["sid"][0] == "Debian sid"

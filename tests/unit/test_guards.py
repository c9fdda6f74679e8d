"""tests/guards.toml, by which `make mutation` breaks each guard: it follows the code that it names."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.support.paths import ROOT


def test_every_guard_is_in_its_file_once_and_its_tests_exist() -> None:
    entries = tomllib.loads((ROOT / "tests" / "guards.toml").read_text(encoding="utf-8"))["guard"]
    counts = {
        entry["what"]: (ROOT / entry["file"]).read_text(encoding="utf-8").count(entry["old"]) for entry in entries
    }

    assert {what: count for what, count in counts.items() if count != 1} == {}
    assert len(counts) == len(entries)
    assert [test for entry in entries for test in entry["tests"] if not (ROOT / "tests" / test).exists()] == []


@pytest.mark.parametrize(
    ("words", "status", "output"),
    [
        (["--help"], 0, "show which these are"),
        (["--list", "mutate-nothing", "deepopsctl/environment/proxy.py"], 0, "deepopsctl/environment/proxy.py: "),
        (["no such guard"], 2, "no guard has one of these words"),
        (["--lits"], 2, "unrecognized arguments: --lits"),
    ],
)
def test_options_of_its_script_run_no_guard(words: list[str], status: int, output: str) -> None:
    argv = [sys.executable, str(ROOT / "scripts" / "mutate-guards"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert done.returncode == status
    assert output in done.stdout + done.stderr
    assert "tested" not in done.stdout

"""Whether `module` works, as shells on this machine answer: functions of a text stand for a module system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment import modules
from tests.support.paths import ROOT

PYTHON = 'module() { case "$*" in "load python") python() { echo 3.13; };; *) echo python/3.13; echo gcc/14;; esac; };'
BROKEN = "module() { echo no such file >&2; return 1; };"


def shell(start: str) -> Sequence[str]:
    """A shell that has read `start` first."""
    return ("bash", "-c", start + ' eval "$0"')


def run(software: list[str], declared: list[str] | None = None, **starts: str) -> dict[str, tuple[str, str]]:
    made = modules.verify_modules(
        "n1", software, {name: shell(start) for name, start in starts.items()}, declared or []
    )
    return {check["name"]: (check["status"], check["message"]) for check in made}


def test_a_node_whose_shells_all_load_a_module_passes() -> None:
    assert run(["python", "gcc"], login=PYTHON, script=PYTHON) == {
        "environment-modules": ("pass", ""),
        "environment-module-shells": ("pass", ""),
    }


@pytest.mark.parametrize(("start", "message"), [("", "module: command not found"), (BROKEN, "no such file")])
def test_the_shell_without_modules_is_named(start: str, message: str) -> None:
    status, text = run(["python"], login=PYTHON, script=start)["environment-module-shells"]

    assert status == "fail"
    assert text.startswith("script: ")
    assert message in text


def test_software_without_a_module_and_a_module_without_its_command_are_named() -> None:
    status, text = run(["python", "openmpi"], login=PYTHON)["environment-modules"]
    empty = "module() { echo python/3.13; }; python() { return 3; };"

    assert (status, text) == ("fail", "not listed: openmpi")
    assert run(["python"], login=empty)["environment-module-shells"][0] == "fail"


def test_a_declared_module_has_to_be_listed_and_to_load() -> None:
    start = (
        'module() { case "$*" in *avail) echo "a/1(default)"; echo b/2;; "load b/2") echo no /b >&2; return 1; esac; };'
    )

    assert run([], ["a/1"], login=start)["environment-modules"] == ("pass", "")
    assert run([], ["a/1", "a/2", "b/2"], login=start)["environment-modules"] == (
        "fail",
        "not listed: a/2; b/2: bash: no /b",
    )


def test_the_file_that_a_script_reads_is_the_one_that_the_role_writes() -> None:
    variables = (ROOT / "roles" / "modules" / "vars" / "main.yml").read_text(encoding="utf-8")

    assert f"__modules_start: {modules.START}\n" in variables


def test_every_version_with_a_file_has_to_load(tmp_path: Path) -> None:
    for version in ("python/3.12", "python/3.13.lua", "python/.version", "gcc/14"):
        (tmp_path / version).parent.mkdir(exist_ok=True)
        (tmp_path / version).touch()

    assert modules.versions(str(tmp_path)) == ["gcc/14", "python/3.12", "python/3.13"]
    assert modules.versions(str(tmp_path / "none")) == []

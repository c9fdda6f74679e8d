"""`avail_wheels`: what users see of a wheelhouse, by names of files as package indexes have them."""

from __future__ import annotations

import errno
import os
import platform
import sys
from pathlib import Path

import pytest

from deepopsctl.node_programs.commands.user_commands import avail_wheels
from deepopsctl.node_programs.commands.user_commands.avail_wheels import Python

ARCH = platform.machine()
MINOR = sys.version_info[1]
WHEELS = (
    f"torch-2.9.1+cu128-cp3{MINOR}-cp3{MINOR}-manylinux_2_28_{ARCH}.whl",
    f"torch-2.10.0-cp3{MINOR}-cp3{MINOR}-manylinux_2_28_{ARCH}.whl",
    f"torch-2.11.0rc1-cp3{MINOR + 1}-cp3{MINOR + 1}-manylinux_2_28_{ARCH}.whl",
    "torch-2.12.0-cp39-abi3-manylinux_2_28_riscv64.whl",
    "torchvision-0.25.0-cp39-abi3-manylinux2014_" + ARCH + ".whl",
    "typing_extensions-4.15.0-py3-none-any.whl",
    "notes.txt",
)


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with wheels, some of them below it, that $WHEELHOUSE names."""
    (tmp_path / "generic").mkdir()
    for name in WHEELS:
        (tmp_path / ("generic" if name.endswith("-any.whl") else "") / name).touch()
    monkeypatch.setenv("WHEELHOUSE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}")
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Rows, without the headings."""
    avail_wheels.main(["--raw", *arguments])
    return capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("wheelhouse")
def test_by_default_the_latest_version_for_this_python_and_processor_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert avail_wheels.main([]) == 0

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "version", "python", "arch"],
        ["-----------------", "-------", "------", "-" * max(len("generic"), len(ARCH))],
        ["torch", "2.10.0", f"cp3{MINOR}", ARCH],
        ["torchvision", "0.25.0", "cp39", ARCH],
        ["typing-extensions", "4.15.0", "py3", "generic"],
    ]


@pytest.mark.usefixtures("wheelhouse")
@pytest.mark.parametrize(
    ("arguments", "versions"),
    [
        (["torch", "--all_versions"], ["2.10.0", "2.9.1"]),
        (["torch", "--all"], ["2.12.0", "2.11.0rc1", "2.10.0", "2.9.1"]),
        (["torch", "--all_pythons"], ["2.11.0rc1"]),
        (["torch", "--python", f"3.{MINOR + 1}"], ["2.11.0rc1"]),
        (["torch<2.10"], ["2.9.1"]),
        (["torch==2.9.1+cu128"], ["2.9.1"]),
        (["torch==2.9.1+cu130"], []),
        (["torch", "-v", "2.9.*"], ["2.9.1"]),
        (["-n", "typing.extensions"], ["4.15.0"]),
        (["torch*"], ["2.10.0", "0.25.0"]),
    ],
)
def test_names_and_options_choose(
    capsys: pytest.CaptureFixture[str], arguments: list[str], versions: list[str]
) -> None:
    assert shown(capsys, *arguments, "--column", "version") == versions


def test_what_a_file_of_requirements_lacks_is_named(wheelhouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (wheelhouse / "requirements.txt").write_text("# all\ntorch==2.9.1\njax[cuda]==0.9 ; python_version > '3'\n-e .\n")

    assert shown(capsys, "-r", f"{wheelhouse}/requirements.txt", "--not-available-only") == ["jax   "]


@pytest.mark.usefixtures("wheelhouse")
def test_no_wheel_of_a_name_is_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert avail_wheels.main(["jax"]) == 1
    assert avail_wheels.main(["torch>>2"]) == 2
    assert "not a version as pip has it: torch>>2" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        avail_wheels.main(["torch", "--python", "3"])
    assert "3 is not a valid version such as 3.13" in capsys.readouterr().err


def test_without_a_wheelhouse_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("WHEELHOUSE", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)

    assert avail_wheels.main([]) == 2
    assert "has no wheelhouse" in capsys.readouterr().err


def test_versions_are_ordered_as_pip_orders_them() -> None:
    shuffled = ["2", "1.0.post1", "1.0b2", "1.10", "1.0", "1.0.dev1", "1.2", "1.0rc1", "1.0a1"]

    assert sorted(shuffled, key=avail_wheels.order) == [
        "1.0.dev1", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.post1", "1.2", "1.10", "2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("a-1-py2.py3-none-any.whl", True),
        ("a-1-cp39-abi3-linux_x86_64.whl", True),
        ("a-1-cp314-abi3-linux_x86_64.whl", False),
        ("a-1-cp39-cp39-linux_x86_64.whl", False),
        ("a-1-py2-none-any.whl", False),
        ("a-1-pp310-pypy310_pp73-linux_x86_64.whl", False),
    ],
)
def test_a_python_takes_the_wheels_that_its_pip_would(tmp_path: Path, name: str, takes: bool) -> None:
    (tmp_path / name).touch()

    assert [Python(3, 13).takes(wheel) for wheel in avail_wheels.read([str(tmp_path)])] == [takes]


def test_a_directory_that_the_user_may_not_read_hides_no_other(
    wheelhouse: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scandir = os.scandir

    def guarded(path: str) -> object:
        if path == str(wheelhouse / "generic"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)

    assert avail_wheels.main(["--raw", "torch*"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["torch", "torchvision"]
    assert shown.err == f"{wheelhouse}/generic: Permission denied\n"


def test_without_the_module_python_it_finds_the_sites_wheelhouse(wheelhouse: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(f"# written by a deploy\n[global]\nfind-links = {wheelhouse}\n")

    assert avail_wheels.wheelhouses({}, str(settings)) == [str(wheelhouse)]
    assert avail_wheels.wheelhouses({"WHEELHOUSE": "/nowhere"}, str(settings)) == []
    assert avail_wheels.wheelhouses({}, str(tmp_path / "none")) == []
    settings.write_text("no section")
    assert avail_wheels.wheelhouses({}, str(settings)) == []

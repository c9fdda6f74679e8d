"""Wheels for users: what pip of this machine fetches for other Pythons, and the list of hashes."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from deepopsctl.environment import wheels
from deepopsctl.environment.wheels import LIST, Target, Wheel
from deepopsctl.errors import DeepOpsError, InputError
from tests.support.problems import problems_of

NODE = Target("3.13", "x86_64", 41)


def make(directory: Path, name: str, version: str, tags: str, requires: str = "") -> Path:
    """A wheel as pip accepts it, without programs."""
    path = directory / f"{name}-{version}-{tags}.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip knows, and nothing else."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


def fetched(tmp_path: Path, *requirements: str, target: Target = NODE, deps: bool = True) -> list[str]:
    directory = tmp_path / f"fetched-{target.python}-{deps}"
    return [path.name for path in wheels.fetch(requirements, [], target, directory, deps=deps)]


def test_what_a_node_answers_is_what_wheels_have_to_fit() -> None:
    assert Target.read("3.13 x86_64 glibc 2.41\n") == NODE
    with pytest.raises(DeepOpsError, match="none that wheels are for"):
        Target.read("3.13 riscv64 glibc 2.41\n")


def test_this_pythons_own_answer_is_understood() -> None:
    answer = subprocess.run(["/usr/bin/python3", "-c", wheels.QUESTION], capture_output=True, text=True, check=True)

    assert Target.read(answer.stdout).python.startswith("3.")


def test_wheels_for_the_nodes_python_and_what_they_need_are_fetched(tmp_path: Path, index: Path) -> None:
    make(index, "fast", "2.0", "cp312-cp312-manylinux_2_28_x86_64", requires="plain")
    make(index, "fast", "1.0", "cp313-cp313-manylinux_2_28_x86_64", requires="plain")
    make(index, "plain", "1.0", "py3-none-any")

    assert fetched(tmp_path, "fast") == ["fast-1.0-cp313-cp313-manylinux_2_28_x86_64.whl", "plain-1.0-py3-none-any.whl"]
    assert fetched(tmp_path, "fast", target=Target("3.12", "x86_64", 36), deps=False) == [
        "fast-2.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    ]


def test_a_wheel_for_a_newer_c_library_than_the_nodes_is_not_taken(tmp_path: Path, index: Path) -> None:
    make(index, "fast", "1.0", "cp313-cp313-manylinux_2_42_x86_64")

    with pytest.raises(DeepOpsError, match="No matching distribution found for fast"):
        fetched(tmp_path, "fast")


def test_a_requirement_is_no_option_of_pip(tmp_path: Path, index: Path) -> None:
    make(index, "plain", "1.0", "py3-none-any")

    with pytest.raises(DeepOpsError, match="Invalid requirement: '--index-url="):
        fetched(tmp_path, "--index-url=https://example.com/", "plain")


def test_hashes_are_kept_and_another_content_is_refused(tmp_path: Path) -> None:
    first = [Wheel("b-1.9-py3-none-any.whl", "1" * 64), Wheel("b-1.10-py3-none-any.whl", "2" * 64)]

    assert wheels.add(tmp_path, first) == first
    assert wheels.add(tmp_path, [*first, Wheel("a_c-1-py3-none-any.whl", "3" * 64)])[0].name == "a-c"
    assert [(each.name, each.version) for each in wheels.read(tmp_path)] == [("a-c", "1"), ("b", "1.10"), ("b", "1.9")]
    before = (tmp_path / LIST).read_text(encoding="utf-8")
    with pytest.raises(InputError, match="has another content"):
        wheels.add(tmp_path, [Wheel("b-1.9-py3-none-any.whl", "4" * 64), Wheel("new-1-py3-none-any.whl", "5" * 64)])
    assert (tmp_path / LIST).read_text(encoding="utf-8") == before


@pytest.mark.parametrize("line", ["x", "1" * 64 + "  ../x-1-py3-none-any.whl", "1" * 64 + "  x.whl"])
def test_a_line_that_is_no_wheel_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / LIST).write_text(f"{'1' * 64}  a-1-py3-none-any.whl\n{line}\n", encoding="utf-8")

    assert problems_of(wheels.read, tmp_path)[0].where == f"{LIST}:2"

"""Wheels for users: what pip of this machine fetches for other Pythons, and the list of hashes."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from deepopsctl.environment import wheels
from deepopsctl.environment.wheel_sets import SETS, expanded
from deepopsctl.environment.wheels import LIST, Target, Wheel
from deepopsctl.errors import DeepOpsError, InputError
from tests.support.problems import problems_of
from tests.support.wheels import index, make

__all__ = ["index"]

NODE = Target("3.13", "x86_64", 41)


def fetched(tmp_path: Path, *requirements: str, target: Target = NODE, deps: bool = True) -> list[str]:
    directory = tmp_path / f"fetched-{target.python}-{deps}"
    return [path.name for path in wheels.fetch(wheels.checked(requirements, []), target, directory, deps=deps)]


def source(directory: Path, name: str) -> tuple[Path, Path]:
    """A source package whose build leaves a file, and that file."""
    built = directory / "built-as-this-user"
    setup = f"open({str(built)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name={name!r}, version='1.0')\n"
    path = directory / f"{name}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in (("setup.py", setup), ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")):
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path, built


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


REFUSED = (
    "--index-url=https://example.com/",
    "-r other.txt",
    "-e .",
    "--find-links /tmp",
    "plain @ https://example.com/plain-1.0.tar.gz",
    "plain@file:///tmp/plain-1.0.tar.gz",
    "git+https://example.com/plain.git#egg=plain",
    "https://example.com/plain-1.0-py3-none-any.whl",
    "./plain",
    "/tmp/plain-1.0.tar.gz",
    "plain --config-settings=x=y",
    "plain==1.0 --hash=sha256:00",
    "plain===${HOME}",
    "plain==1.0 \\",
)


@pytest.mark.parametrize("text", REFUSED)
def test_only_names_and_versions_are_requirements(tmp_path: Path, text: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"# a comment\n\n{text}\nplain\n", encoding="utf-8")

    (named,) = problems_of(lambda: wheels.checked((), [file]))
    assert named.where == f"{file}:3"
    assert problems_of(lambda: wheels.checked((text,), []))[0].where == "wheels add"


def test_all_wrong_lines_are_named_at_once_and_good_ones_keep_their_meaning(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("-r a\nA_b[x]>=1,<2 ; python_version < '3.14'  # why\n-e .\n", encoding="utf-8")

    assert [each.where for each in problems_of(lambda: wheels.checked((), [file]))] == [f"{file}:1", f"{file}:3"]
    assert wheels.checked(("A_b[x]>=1,<2 ; python_version < '3.14'",), []) == ['a-b[x]<2,>=1; python_version < "3.14"']


def test_a_name_that_is_a_file_here_is_not_that_file(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, built = source(tmp_path, "evil")
    path.rename(tmp_path / "evil.tar.gz")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pip.py").write_text(f"open({str(built)!r}, 'w').close()\n", encoding="utf-8")

    with pytest.raises(DeepOpsError, match="No matching distribution found for evil-tar-gz"):
        fetched(tmp_path, "evil.tar.gz")
    assert not built.exists()


def test_a_source_that_a_wheel_needs_from_an_address_is_not_built(tmp_path: Path, index: Path) -> None:
    path, built = source(tmp_path, "evil")
    make(index, "plain", "1.0", "py3-none-any", requires=f"evil @ {path.as_uri()}")

    with pytest.raises(DeepOpsError, match="led to a source, which would be built here: nothing was fetched"):
        fetched(tmp_path, "plain")
    assert not built.exists()
    assert fetched(tmp_path, "plain", deps=False) == ["plain-1.0-py3-none-any.whl"]


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


def test_a_set_is_its_packages_and_its_size_is_said() -> None:
    packages, notes = expanded(["attrs", "@science"])

    assert packages == ["attrs", *SETS["science"].packages]
    assert wheels.checked(packages, []) == packages
    (note,) = notes
    assert note.startswith("@science: jupyterlab, matplotlib,")
    assert note.endswith("about 106 wheels, 140 MiB here and in the wheelhouse: 1 min at 100 Mbit/s")
    (named,) = problems_of(lambda: expanded(["@pytorhc"]))
    assert named.hint == "did you mean pytorch?"


def test_a_python_without_pip_is_named() -> None:
    error = wheels.failure("Traceback (most recent call last):\nImportError: No module named pip\n")

    assert str(error) == "pip could not fetch them: ImportError: No module named pip"
    assert "Python needs pip" in error.hint

"""Packages that were built elsewhere: only a whole set of one version is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.errors import InputError
from deepopsctl.files import sha256_of
from deepopsctl.lifecycle.package_build import BuildStore
from deepopsctl.lifecycle.package_files import add_packages, read_sums
from tests.support.files import build_package
from tests.support.problems import problems_of

VERSION = "26.05.5-1"
NAMES = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    exact = {"Depends": f"slurm-wlm-basic-plugins (= {VERSION})"}
    fields = {name: {} if name.endswith("plugins") else exact for name in NAMES}
    packages = [build_package(tmp_path, name, VERSION, Source="slurm-wlm", **more) for name, more in fields.items()]
    return [*packages, build_package(tmp_path, "libhwloc15", "2.15.0-2", Source="hwloc")]


def test_a_whole_set_is_kept_once_with_its_libraries(files: list[Path], tmp_path: Path) -> None:
    store = BuildStore(tmp_path / "store")
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("".join(f"{sha256_of(file)}  ./{file.name}\n" for file in files), encoding="utf-8")

    made, is_new = add_packages(store, "slurm", "debian13", "amd64", files, read_sums(sums))

    assert is_new
    assert (made.text("source"), made.text("version"), made.text("release")) == ("slurm-wlm", VERSION, "26.05")
    assert set(made.packages) == {*NAMES, "libhwloc15"}
    assert made.others == ("libhwloc15",)
    assert add_packages(store, "slurm", "debian13", "amd64", files, {}) == (made, False)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda files, _: files[:4], "missing is slurm-wlm-basic-plugins 26.05.5-1"),
        (
            lambda files, path: [*files, build_package(path, "sackd", "26.05.4-1", Source="slurm-wlm")],
            "2 versions of slurm-wlm",
        ),
        (lambda files, _: files[-1:], "none is of slurm-wlm"),
        (
            lambda files, path: [*files, build_package(path, "slurmd", "26.05.5-1~bpo1", Source="slurm-wlm")],
            "slurmd is there more than once",
        ),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(
    files: list[Path], tmp_path: Path, changed: object, reason: str
) -> None:
    assert callable(changed)
    store = BuildStore(tmp_path / "store")
    problems = problems_of(add_packages, store, "slurm", "debian13", "amd64", changed(files, tmp_path), {})
    assert reason in str([problem.message for problem in problems])
    assert store.builds() == []


def test_a_file_that_is_not_in_the_list_of_checksums_or_another_is_refused(files: list[Path], tmp_path: Path) -> None:
    sums = {file.name: sha256_of(file) for file in files[1:]} | {files[1].name: "0" * 64}
    first, second = problems_of(add_packages, BuildStore(tmp_path / "store"), "slurm", "debian13", "amd64", files, sums)
    assert first.message == "is not in the list of checksums"
    assert second.message.endswith("not " + "0" * 64)


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slurmd.deb"
    path.write_text("<html>not found</html>", encoding="utf-8")
    with pytest.raises(InputError, match="not a Debian package"):
        add_packages(BuildStore(tmp_path / "store"), "slurm", "debian13", "amd64", [path], {})

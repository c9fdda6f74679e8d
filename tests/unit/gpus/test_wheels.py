"""Libraries for measurements: fetched once, checked by hash, unpacked whole or not at all, removed on request."""

from __future__ import annotations

import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deepopsctl.cli.main import cli
from deepopsctl.errors import DeepOpsError
from deepopsctl.gpus import wheels
from deepopsctl.gpus.wheels import Wheel, cache_directory, fetch
from deepopsctl.node_programs.suites.validate_gpu import inputs
from tests.support.node_modules import Call, FailedError, plugin
from tests.support.paths import ROOT

MEMBER = "nvidia/nccl/lib/libnccl.so.2"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with one library in it."""
    path = tmp_path / "nccl.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, b"library")
        archive.writestr("nvidia/nccl/include/nccl.h", b"header")
    return path


def pinned(wheel: Path, member: str = MEMBER, digest: str = "") -> dict[str, Any]:
    hashes = {"sha256": digest or sha256(wheel.read_bytes()).hexdigest(), "platform": "any"}
    wheels_by_architecture = dict.fromkeys(("x86_64", "aarch64"), hashes)
    return {"nccl": {"package": "nvidia-nccl", "version": "1.2", "files": [member], "wheels": wheels_by_architecture}}


def keep(directory: Path, libraries: dict[str, Any], state: str = "present", **more: Any) -> dict[str, Any]:
    """Call the module."""
    arguments = {"state": state, "path": str(directory), "libraries": libraries, **more}
    try:
        return Call(arguments).run(plugin("modules", "python_wheels"))
    except FailedError as error:
        return {"failed": True, **error.data}


class TestOnTheNode:
    def test_what_is_missing_is_reported_then_unpacked_once(self, tmp_path: Path, wheel: Path) -> None:
        directory, libraries = tmp_path / "kept", pinned(wheel)

        asked = keep(directory, libraries)
        installed = keep(directory, libraries, wheels={"nccl": str(wheel)})
        again = keep(directory, libraries)

        assert (asked["changed"], asked["missing"]) == (False, ["nccl"])
        assert (installed["changed"], installed["missing"]) == (True, [])
        assert (again["changed"], again["missing"]) == (False, [])
        there = Path(inputs.library(str(directory), libraries, "nccl"))
        assert there.read_bytes() == b"library"
        assert there.stat().st_mode & 0o777 == 0o644
        assert sorted(path.name for path in there.parent.iterdir()) == [".sha256", "libnccl.so.2"]

    def test_a_library_that_was_damaged_or_is_another_version_is_missing(self, tmp_path: Path, wheel: Path) -> None:
        directory, libraries = tmp_path / "kept", pinned(wheel)
        keep(directory, libraries, wheels={"nccl": str(wheel)})
        Path(inputs.library(str(directory), libraries, "nccl")).unlink()

        assert keep(directory, libraries)["missing"] == ["nccl"]
        assert keep(directory, pinned(wheel, digest="0" * 64))["missing"] == ["nccl"]

    def test_a_wheel_without_the_library_leaves_nothing(self, tmp_path: Path, wheel: Path) -> None:
        directory = tmp_path / "kept"

        result = keep(directory, pinned(wheel, member="nvidia/other.so"), wheels={"nccl": str(wheel)})

        assert "no item named" in result["msg"]
        assert not directory.exists() or list(directory.iterdir()) == []

    def test_they_are_removed_once(self, tmp_path: Path, wheel: Path) -> None:
        directory = tmp_path / "kept"
        keep(directory, pinned(wheel), wheels={"nccl": str(wheel)})

        assert keep(directory, pinned(wheel), "absent")["changed"] is True
        assert not directory.exists()
        assert keep(directory, pinned(wheel), "absent")["changed"] is False


class TestFetching:
    def test_a_wheel_is_fetched_once_and_again_when_it_was_damaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = []

        def download(wanted: Wheel, directory: Path) -> Path:
            calls.append(wanted)
            (directory / "x.whl").write_bytes(b"wheel")
            return directory / "x.whl"

        monkeypatch.setattr(wheels, "_download", download)
        wanted = Wheel("nvidia-nccl", "1.2", "any", sha256(b"wheel").hexdigest())

        first, second = fetch(wanted, tmp_path), fetch(wanted, tmp_path)
        first.write_bytes(b"cut off")
        third = fetch(wanted, tmp_path)

        assert first == second == third
        assert third.read_bytes() == b"wheel"
        assert len(calls) == 2
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".fetching")] == []

    def test_pip_is_asked_for_that_version_and_hash_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def run(argv: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
            asked.append((argv, Path(argv[-1]).read_text()))
            return subprocess.CompletedProcess(argv, 1, "", "ERROR: No matching distribution found")

        monkeypatch.setattr(subprocess, "run", run)

        with pytest.raises(DeepOpsError, match=r"could not fetch nvidia-nccl 1\.2: ERROR: No matching") as raised:
            fetch(Wheel("nvidia-nccl", "1.2", "manylinux_2_27_x86_64", "ab" * 32), tmp_path)

        ((argv, wanted),) = asked
        assert wanted == f"nvidia-nccl==1.2 --hash=sha256:{'ab' * 32}\n"
        assert {"--no-deps", "--require-hashes", "--only-binary=:all:", "manylinux_2_27_x86_64"} <= set(argv)
        assert "pip download" in raised.value.hint

    def test_the_users_cache_is_used(self) -> None:
        assert cache_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/deepopsctl/wheels")
        assert cache_directory({"HOME": "/home/a"}) == Path("/home/a/.cache/deepopsctl/wheels")


def test_both_libraries_are_pinned_for_both_machines() -> None:
    libraries = yaml.safe_load((ROOT / "group_vars/all/versions.yml").read_text())["deepops_gpu_libraries"]

    assert set(libraries) == {"cublas", "nccl"}
    for library in libraries.values():
        assert set(library["wheels"]) == {"x86_64", "aarch64"}
        assert all(len(wheel["sha256"]) == 64 for wheel in library["wheels"].values())


def test_the_action_brings_what_the_module_calls_missing() -> None:
    with pytest.raises(DeepOpsError, match="no wheel of nvidia-nccl for riscv64"):
        plugin("action", "python_wheels").ActionModule._fetched({"package": "nvidia-nccl", "wheels": {}}, "riscv64")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["smoke", "--with-libraries"], "for the suite gpu"),
        (["gpu", "--with-libraries", "--remove-libraries"], "exclude each other"),
    ],
)
def test_the_options_belong_to_the_gpu_suite(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(cli, ["validate", *arguments])

    assert done.exit_code == 2
    assert text in done.output

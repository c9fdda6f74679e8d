"""The recipe of the node image, and the name under which it is cached."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.errors import InputError
from deepopsctl.lab import rootfs
from deepopsctl.lab.image import CODENAMES, Recipe
from deepopsctl.lab.rootfs import RootFile, write_rootfs

DEBIAN13 = Recipe.for_os("debian13")


def argv(recipe: Recipe) -> tuple[str, ...]:
    return recipe.mmdebstrap_argv(Path("/tmp/files"), Path("/tmp/root.tar"))


def test_the_name_tells_the_system_and_is_always_the_same() -> None:
    assert DEBIAN13.reference.startswith("localhost/deepopsctl-lab:debian13-")
    assert DEBIAN13.reference == Recipe.for_os("debian13").reference


def test_another_system_mirror_or_file_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = replace(DEBIAN13, mirror="http://mirror.example.com/debian")
    references = [*(Recipe.for_os(name).reference for name in CODENAMES), mirrored.reference]
    monkeypatch.setitem(rootfs.FILES, "etc/motd", RootFile(0o644, "hello\n"))
    assert len({*references, DEBIAN13.reference}) == len(CODENAMES) + 2


def test_an_unknown_system_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError) as caught:
        Recipe.for_os("debian11")
    assert "debian12, debian13, sid" in caught.value.hint


def test_only_sid_takes_an_index_past_its_date() -> None:
    past_date = '--aptopt=Acquire::Check-Valid-Until "false"'
    assert [name for name in CODENAMES if past_date in argv(Recipe.for_os(name))] == ["sid"]


def test_suite_tarball_and_mirror_come_last_in_mmdebstraps_order() -> None:
    recipe = Recipe.for_os("debian13", "http://mirror.example.com/debian")

    assert argv(recipe)[-3:] == ("trixie", "/tmp/root.tar", "http://mirror.example.com/debian")
    # without one mmdebstrap chooses
    assert argv(DEBIAN13)[-2:] == ("trixie", "/tmp/root.tar")


def test_files_are_laid_out_with_their_modes(tmp_path: Path) -> None:
    write_rootfs(tmp_path, rootfs.FILES)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in rootfs.FILES}
    assert modes == {name: file.mode for name, file in rootfs.FILES.items()}
    assert modes["etc/sudoers.d/lab"] == 0o440


def test_no_secret_and_no_host_key_is_part_of_the_image() -> None:
    assert not any("ssh_host" in name or "shadow" in name for name in rootfs.FILES)
    assert "rm -f /etc/ssh/ssh_host_*" in rootfs.FINISH


@pytest.mark.parametrize(
    "script",
    [rootfs.INIT, rootfs.WRITABLE_CGROUPS, rootfs.FIRST_BOOT, rootfs.FINISH],
    ids=["init", "cgroups", "first boot", "finish"],
)
def test_scripts_are_valid_shell(script: str) -> None:
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0

"""Directories of users and groups: made once, never followed into what a user has put there."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside

directories = nodeside.plugin("modules", "user_directories")
record = nodeside.load("node.record")
drift = nodeside.load("node.drift")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")

PEOPLE = [{"name": "alice", "uid": 60010, "groups": ["def-curie"]}, {"name": "bob", "uid": 60011}]
GROUPS = [{"name": "def-curie", "gid": 60001}]
MKDIR = os.mkdir


@pytest.fixture(autouse=True)
def strict_umask(state: Path) -> Iterator[None]:
    umask = os.umask(0o077)
    yield
    os.umask(umask)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space"
    path.mkdir()
    path.chmod(0o755)
    return path


def make(space: Path, by: str = "user", *, check: bool = False, mounted: bool = False) -> dict[str, Any]:
    params = {"spaces": [{"path": str(space), "by": by, "mounted": mounted}], "people": PEOPLE, "groups": GROUPS,
              "component": "environment", "step": "user_spaces", "digest": "d"}  # fmt: skip
    return nodeside.Call(params, check=check).run(directories)


def refused(space: Path, by: str = "user") -> str:
    """What a call that ends with an error says."""
    with pytest.raises(nodeside.FailedError) as error:
        make(space, by)
    return str(error.value)


def facts(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_every_user_gets_a_directory_of_their_own_and_a_second_call_changes_nothing(space: Path) -> None:
    checked = make(space, check=True)
    assert list(space.iterdir()) == []
    first, second = make(space), make(space)

    assert facts(space / "alice") == (60010, 60010, 0o700)
    assert facts(space / "bob") == (60011, 60011, 0o700)
    assert (first["changed"], second["changed"]) == (True, False)
    # check mode announces what a run makes
    assert checked["changes"] == first["changes"]


def test_a_directory_of_a_group_is_roots_and_hands_its_group_on(space: Path) -> None:
    make(space, "group")

    assert facts(space / "def-curie") == (0, 60001, 0o2770)
    assert [path.name for path in space.iterdir()] == ["def-curie"]


def test_the_mode_that_a_user_has_set_and_what_is_inside_stay(space: Path) -> None:
    make(space)
    (space / "alice").chmod(0o755)
    (space / "alice" / "data").write_text("x")

    assert not make(space)["changed"]
    assert facts(space / "alice") == (60010, 60010, 0o755)


def test_a_link_in_place_of_a_directory_fails_the_call_and_is_not_followed(space: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(0o755)
    (space / "alice").symlink_to(victim)

    assert f"{space}/alice is not a directory" in refused(space)
    assert facts(victim)[:2] == (0, 0)
    assert (space / "alice").is_symlink()
    assert facts(space / "bob") == (60011, 60011, 0o700)


def test_a_directory_of_somebody_else_is_left_alone_and_looked_at_by_the_next_deploy(space: Path) -> None:
    (space / "alice").mkdir()
    os.chown(space / "alice", 60011, 60011)

    assert f"{space}/alice belongs to 60011:60011" in refused(space)
    assert facts(space / "alice")[0] == 60011
    # all others are made
    assert facts(space / "bob") == (60011, 60011, 0o700)
    assert record.load("environment", "user_spaces") is None


def test_what_a_cut_off_run_left_is_finished_and_roots_own_data_is_not_given_away(space: Path) -> None:
    (space / "alice").mkdir()
    (space / "bob").mkdir()
    (space / "bob" / "backup").write_text("root's")

    assert f"{space}/bob belongs to 0:0" in refused(space)
    assert facts(space / "alice") == (60010, 60010, 0o700)


@pytest.mark.parametrize(("owner", "gid"), [(60011, 60001), (0, 60011), (0, 0)])
def test_a_groups_directory_that_a_member_or_another_group_made_fails_the_call(
    space: Path, owner: int, gid: int
) -> None:
    (space / "def-curie").mkdir()
    (space / "def-curie" / "bait").write_text("")
    os.chown(space / "def-curie", owner, gid)

    assert f"{space}/def-curie belongs to {owner}:{gid}" in refused(space, "group")


@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o1777, 0), (0o1775, 0), (0o755, 60011)])
@pytest.mark.parametrize("by", ["user", "group"])
def test_nothing_is_made_where_others_could_be_first(space: Path, mode: int, owner: int, by: str) -> None:
    space.chmod(mode)
    os.chown(space, owner, owner)

    assert f"others than root may write in {space} (user id {owner}, mode {mode:04o})" in refused(space, by)
    assert list(space.iterdir()) == []


def make_nobodys(name: str, mode: int, *, dir_fd: int) -> None:
    """What a server that squashes root does where everybody may write; elsewhere it refuses."""
    MKDIR(name, mode, dir_fd=dir_fd)
    os.chown(name, 65534, 65534, dir_fd=dir_fd)


@pytest.mark.parametrize(
    "server", [nodeside.raising(PermissionError()), make_nobodys], ids=["refuses", "makes one of `nobody`"]
)
def test_where_root_is_squashed_the_missing_ones_are_named(
    space: Path, monkeypatch: pytest.MonkeyPatch, server: Callable[..., None]
) -> None:
    monkeypatch.setattr(directories.os, "mkdir", server)

    result = make(space)

    sentence = f"root may not make directories in {space} (root is squashed?): make on its server: alice; bob"
    assert (result["changed"], result["conflicts"]) == (False, [sentence])
    assert list(space.iterdir()) == []


def test_a_directory_of_roots_that_squashed_root_may_not_read_ends_nothing(
    space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (space / "alice").mkdir(0o700)
    opened = os.open

    def squashed(path: Any, *arguments: Any, **more: Any) -> int:
        if path == "alice":
            raise PermissionError
        return opened(path, *arguments, **more)

    monkeypatch.setattr(directories.os, "open", squashed)

    assert f"{space}/alice belongs to 0:0" in refused(space)
    assert facts(space / "bob") == (60011, 60011, 0o700)


def test_nothing_is_made_in_an_empty_mount_point(space: Path) -> None:
    result = make(space, mounted=True)

    assert result["conflicts"] == [f"{space} is not mounted: no directory was made there"]
    assert list(space.iterdir()) == []
    # check mode announces what is made once it is mounted
    result = make(space, mounted=True, check=True)
    assert [change["name"] for change in result["changes"]] == [f"{space}/alice", f"{space}/bob"]
    assert result["conflicts"] == []


def test_a_directory_that_is_bound_there_is_mounted(space: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir(0o755)
    if subprocess.run(["mount", "--bind", source, space], capture_output=True).returncode:
        pytest.skip("no mounts can be made here")
    try:
        assert make(space, mounted=True)["conflicts"] == []
    finally:
        subprocess.run(["umount", space], check=True)

    assert sorted(path.name for path in source.iterdir()) == ["alice", "bob"]


def test_the_gate_reports_a_directory_that_is_gone_but_not_a_changed_mode(space: Path) -> None:
    make(space)
    (space / "alice").chmod(0o755)
    (space / "bob").rmdir()

    assert drift.differences(record.load("environment", "user_spaces")) == [
        f"{space}/bob is gone, or belongs to another user"
    ]

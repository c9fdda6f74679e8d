"""Root goes where links of root's lead, and nowhere else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside

files = nodeside.load("node.files")
people = nodeside.load("node.people")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
USER = 60010


def users_link(path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.chown(path, USER, USER, follow_symlinks=False)


def facts(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, stat.S_IMODE(status.st_mode)


def make(path: Path) -> None:
    os.close(files.open_own(str(path), os.O_RDONLY | os.O_DIRECTORY, make=True))


def test_links_of_roots_are_followed_also_to_other_links_and_upwards(tmp_path: Path) -> None:
    (tmp_path / "disk" / "data").mkdir(parents=True)
    (tmp_path / "mnt").symlink_to("disk")
    (tmp_path / "srv").symlink_to(tmp_path / "mnt" / ".." / "mnt" / "data")

    make(tmp_path / "srv" / "new" / "state")

    assert (tmp_path / "disk" / "data" / "new" / "state").is_dir()


@pytest.mark.parametrize("where", ["link", "link/below", "own/link"])
def test_a_users_link_is_refused_wherever_it_stands(tmp_path: Path, where: str) -> None:
    (victim := tmp_path / "victim").mkdir()
    (tmp_path / "own").mkdir()
    for name in ("link", "own/link"):
        users_link(tmp_path / name, victim)

    with pytest.raises(OSError, match="is a link of a user's"):
        make(tmp_path / where)
    with pytest.raises(OSError, match="is a link of a user's"):
        files.set_owner_and_mode(str(tmp_path / where), (USER, USER), 0o777)

    assert facts(victim) == (0, 0o755)
    assert list(victim.iterdir()) == []


def test_a_link_that_comes_while_root_looks_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (victim := tmp_path / "victim").mkdir()
    (tmp_path / "state").mkdir()
    query = os.stat

    def inspect_then_swap(path: Any, **how: Any) -> os.stat_result:
        status = query(path, **how)
        if path == "state" and stat.S_ISDIR(status.st_mode):
            (tmp_path / "state").rmdir()
            users_link(tmp_path / "state", victim)
        return status

    monkeypatch.setattr(files.os, "stat", inspect_then_swap)
    with pytest.raises(OSError, match="state") as error:
        make(tmp_path / "state")

    assert error.value.errno in (errno.ENOTDIR, errno.ELOOP)
    assert facts(victim) == (0, 0o755)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    with pytest.raises(OSError, match="link"):
        make(tmp_path / "a")


def test_a_home_is_made_by_handles_whatever_is_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root of a node does that has the same file system, where the server does not squash it."""
    (victim := tmp_path / "victim").mkdir()
    (victim / ".bashrc").write_text("root's")
    (skeleton := tmp_path / "skel").mkdir()
    (skeleton / ".bashrc").write_text("new")
    (skeleton / "a" / "b").mkdir(parents=True)
    (skeleton / "a").chmod(0o2755)
    (skeleton / "a" / "link").symlink_to("/etc/passwd")
    (base := tmp_path / "home").mkdir(0o755)
    monkeypatch.setattr(people, "SKELETON", str(skeleton))
    made = os.mkdir

    def make_then_swap(path: Any, mode: int = 0o777, **how: Any) -> None:
        made(path, mode, **how)
        if path == ".deepopsctl-bob":
            (base / ".deepopsctl-bob").rename(base / "aside")
            (base / ".deepopsctl-bob").symlink_to(victim)

    people.make_home(str(base), "alice", USER, USER)
    monkeypatch.setattr(people.os, "mkdir", make_then_swap)
    with pytest.raises(OSError, match="deepopsctl-bob"):
        people.make_home(str(base), "bob", USER, USER)

    alice = base / "alice"
    assert facts(alice) == (USER, 0o700)
    assert facts(alice / "a") == (USER, 0o2755)
    assert facts(alice / "a" / "link")[0] == facts(alice / "a" / "b")[0] == facts(alice / ".bashrc")[0] == USER
    assert (alice / ".bashrc").read_text() == "new"
    assert Path("/etc/passwd").stat().st_uid == 0
    assert (facts(victim / ".bashrc")[0], (victim / ".bashrc").read_text()) == (0, "root's")

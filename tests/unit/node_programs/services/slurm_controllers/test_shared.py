"""Controllers test what they share: on directories of this machine, one of which both have."""

from __future__ import annotations

import os
import pwd
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepopsctl.node_programs._shared import mount_table
from deepopsctl.node_programs.services.slurm_controllers import heartbeat, main, shared


@pytest.fixture(autouse=True)
def everything_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Slurm's user, as before a first deploy."""
    monkeypatch.setattr(shared, "has_slurm", lambda: False)
    monkeypatch.setattr(shared, "mounted_type", lambda _path: "nfs4")


def request(host: str, path: Path, phase: str, **more: object) -> dict[str, Any]:
    place = {"mount": str(path), "directory": str(path / "slurmctld"), "network": True}
    return {"host": host, "phase": phase, "check_mode": False, **place, **more}


def words(**paths: Path) -> dict[str, str]:
    """What each host has written in its path."""
    return {host: main.main(request(host, path, "write"))["word"] for host, path in paths.items()}


def test_controllers_that_share_a_directory_see_each_others_words(tmp_path: Path) -> None:
    written = words(a=tmp_path, b=tmp_path)

    assert [main.main(request(host, tmp_path, "read", words=written)) for host in "ab"] == [{}, {}]
    for host in "ab":
        main.main(request(host, tmp_path, "remove"))
    assert list(tmp_path.iterdir()) == []


def test_a_new_controller_has_no_user_slurm_yet_and_the_other_one_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (shared, heartbeat):
        monkeypatch.setattr(module, "SLURM", pwd.getpwuid(os.geteuid()).pw_name)
    monkeypatch.setattr(shared, "has_slurm", lambda: True)
    written = words(old=tmp_path)
    monkeypatch.setattr(shared, "has_slurm", lambda: False)
    written |= words(new=tmp_path)

    assert main.main(request("new", tmp_path, "read", words=written)) == {}
    monkeypatch.setattr(shared, "has_slurm", lambda: True)
    assert main.main(request("old", tmp_path, "read", words=written)) == {}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> int:
    """The id of Slurm's user, who is there."""
    monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=64030, pw_gid=64030))
    monkeypatch.setattr(shared, "has_slurm", lambda: True)
    return 64030


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


@needs_root
def test_a_directory_that_another_controller_makes_at_the_same_moment_is_given_to_slurm_by_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slurm: int
) -> None:
    make = os.mkdir

    def make_after_another(path: str, mode: int, dir_fd: int) -> None:
        make(path, mode, dir_fd=dir_fd)
        raise FileExistsError

    monkeypatch.setattr(os, "mkdir", make_after_another)

    for _controller in range(2):
        shared._make_directory(str(tmp_path / "slurmctld"))

    status = (tmp_path / "slurmctld").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (slurm, slurm, 0o700)


def of_a_user(place: Path) -> None:
    place.mkdir()
    os.chown(place, 60010, 60010)


def of_slurm_for_all(place: Path) -> None:
    place.mkdir()
    os.chown(place, 64030, 64030)
    place.chmod(0o777)


def with_files_of_root(place: Path) -> None:
    place.mkdir()
    (place / "job_state").write_text("a user's, moved here")


@needs_root
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda place: place.symlink_to(place.parent.parent / "victim"), "slurmctld is a link"),
        (lambda place: place.write_text(""), "slurmctld is not a directory"),
        (of_a_user, "is of user id 60010, mode 0755: others than slurm may write there"),
        (of_slurm_for_all, "is of user id 64030, mode 0777: others than slurm may write there"),
        (with_files_of_root, "has files, and belongs to root"),
    ],
)
def test_what_somebody_else_made_is_neither_followed_nor_taken(
    tmp_path: Path, slurm: int, made: Callable[[Path], object], message: str
) -> None:
    (tmp_path / "victim").mkdir()
    (mount := tmp_path / "mount").mkdir()
    made(mount / "slurmctld")
    before = os.lstat(mount / "slurmctld")

    answer = main.main(request("a", mount, "write"))

    assert answer["failed"]
    assert message in answer["msg"]
    after = os.lstat(mount / "slurmctld")
    assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)
    assert (tmp_path / "victim").stat().st_uid == 0


@needs_root
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o1777), (0, 0o775), (60010, 0o755), (65534, 0o755)])
def test_a_mount_in_which_others_may_write_is_refused(tmp_path: Path, slurm: int, owner: int, mode: int) -> None:
    os.chown(tmp_path, owner, 0)
    tmp_path.chmod(mode)

    answer = main.main(request("a", tmp_path, "write"))

    assert f"others than root and slurm may write in {tmp_path}" in answer["msg"]
    assert not (tmp_path / "slurmctld").exists()


def test_directories_of_the_same_name_that_are_not_shared_are_refused(tmp_path: Path) -> None:
    (first := tmp_path / "first").mkdir()
    (second := tmp_path / "second").mkdir()
    written = words(a=first, b=second)

    answer = main.main(request("a", first, "read", words=written))

    assert answer["failed"]
    assert f"{first} is not shared: what b wrote there is not seen by a" in answer["msg"]
    # nothing is left of it
    assert list(first.iterdir()) == []


def test_a_word_of_an_earlier_run_does_not_pass_for_a_new_one(tmp_path: Path) -> None:
    written = words(a=tmp_path)
    written_again = words(a=tmp_path)

    assert main.main(request("b", tmp_path, "read", words=written))["failed"]
    assert written != written_again


@pytest.mark.parametrize(("fstype", "message"), [("", "nothing is mounted"), ("ext4", "ext4 is mounted on")])
def test_what_is_not_mounted_or_of_one_node_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fstype: str, message: str
) -> None:
    monkeypatch.setattr(shared, "mounted_type", lambda _path: fstype)

    answer = main.main(request("a", tmp_path, "write"))

    assert answer["failed"]
    assert message in answer["msg"]


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    assert main.main({**request("a", tmp_path, "write"), "check_mode": True}) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_mount_table_of_this_machine_is_read() -> None:
    assert [mount_table.mounted_type(path) for path in ("/proc", "/proc/self")] == ["proc", ""]


def test_a_heartbeat_is_two_numbers_of_64_bits_and_nothing_less(tmp_path: Path) -> None:
    assert heartbeat.read(str(tmp_path)) is None
    for content, expected in ((b"1234", None), (struct.pack(">QQ", 1_790_000_000, 1), (1_790_000_000, 1))):
        (tmp_path / "heartbeat").write_bytes(content)
        assert heartbeat.read(str(tmp_path)) == expected

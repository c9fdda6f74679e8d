"""Controllers test what they share: on directories of this machine, one of which both have."""

from __future__ import annotations

import os
import pwd
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepopsctl.node_programs.slurm_controllers import heartbeat, main, mounts, shared


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


def test_a_directory_that_another_controller_makes_at_the_same_moment_is_given_to_slurm_by_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    user, given = SimpleNamespace(pw_uid=64030, pw_gid=64030), []
    make = os.mkdir

    def make_after_another(path: str, mode: int) -> None:
        make(path, mode)
        raise FileExistsError

    monkeypatch.setattr(pwd, "getpwnam", lambda _: user)
    monkeypatch.setattr(os, "mkdir", make_after_another)
    monkeypatch.setattr(os, "chown", lambda *how: given.append(how))

    shared._make_directory(str(tmp_path / "slurmctld"))

    assert given == [(str(tmp_path / "slurmctld"), 64030, 64030)]


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
    assert [mounts.mounted_type(path) for path in ("/proc", "/proc/self")] == ["proc", ""]


def test_a_heartbeat_is_two_numbers_of_64_bits_and_nothing_less(tmp_path: Path) -> None:
    assert heartbeat.read(str(tmp_path)) is None
    for content, expected in ((b"1234", None), (struct.pack(">QQ", 1_790_000_000, 1), (1_790_000_000, 1))):
        (tmp_path / "heartbeat").write_bytes(content)
        assert heartbeat.read(str(tmp_path)) == expected

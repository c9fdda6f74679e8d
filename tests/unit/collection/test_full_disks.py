"""File systems that are full, on real ones of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import node_modules as nodeside

disks = nodeside.load("node.full_disks")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    (path := tmp_path / "small").mkdir()
    options = "size=4M,nr_inodes=200,mode=0755"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", path], capture_output=True).returncode:
        pytest.skip("no mounts can be made here")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def places(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's state and another directory on one file system; a directory that is not there."""
    wanted = [(str(small), "Slurm's state"), (f"{small}/.", "the system"), (f"{small}/none", "x")]
    monkeypatch.setattr(disks, "places", lambda: wanted)


@pytest.mark.usefixtures("places")
def test_a_full_file_system_is_named_once_by_the_first_thing_that_needs_it(small: Path) -> None:
    assert disks.full() == []
    (small / "big").write_bytes(b"x" * (4 * 2**20 - 2**16))

    assert disks.full() == [{"path": str(small), "what": "Slurm's state", "free_mb": 0, "why": "space"}]


@pytest.mark.usefixtures("places")
def test_one_without_inodes_and_one_that_is_read_only_can_not_be_written_to(small: Path) -> None:
    for number in range(197):
        (small / str(number)).touch()
    assert [entry["why"] for entry in disks.full()] == ["files"]

    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    assert [entry["why"] for entry in disks.full()] == ["read-only"]


def test_a_file_server_that_does_not_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ask = os.statvfs
    monkeypatch.setattr(disks, "PATIENCE_S", 0.05)
    monkeypatch.setattr(disks, "places", lambda: [("/hangs", "Slurm's state"), (str(tmp_path), "the system")])
    monkeypatch.setattr(
        disks.os, "statvfs", lambda path: subprocess.run(["sleep", "1"]) if path == "/hangs" else ask(path)
    )

    assert [entry["path"] for entry in disks.full() if entry["path"] == "/hangs"] == []


def test_the_state_directory_is_that_of_slurm_conf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(disks, "SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert disks.state_directory() == ""
    (tmp_path / "slurm.conf").write_text("#StateSaveLocation=/no\nClusterName=a\nstatesavelocation = /srv/state\n")
    assert disks.state_directory() == "/srv/state"

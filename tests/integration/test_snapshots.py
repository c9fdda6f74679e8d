"""Snapshots of homes on a real btrfs: users restore their own files from them by `cp`, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.snapshots import cli
from tests.support.btrfs import mounted

ALICE, BOB = "60010", "60011"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A file system of btrfs with the home of alice."""
    with mounted(tmp_path) as path:
        (path / "alice").mkdir(0o700)
        os.chown(path / "alice", int(ALICE), int(ALICE))
        as_user(ALICE, f"echo chapter one >{path}/alice/thesis")
        yield path


def as_user(uid: str, script: str) -> subprocess.CompletedProcess[str]:
    argv = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sh", "-c", script]
    return subprocess.run(argv, capture_output=True, text=True)


def snapshot_by_hand(home: Path, path: Path) -> None:
    subprocess.run(["btrfs", "subvolume", "snapshot", "-r", home, path], check=True, capture_output=True)


def take(home: Path, tmp_path: Path, **wanted: int) -> int:
    """One call of the program for this file system."""
    config = tmp_path / "snapshots.json"
    entry = {"path": str(home), "hourly": 24, "daily": 7, "weekly": 4, "free_percent": 0, **wanted}
    config.write_text(json.dumps({"schema": 1, "file_systems": [entry]}), encoding="utf-8")
    before = os.umask(0o077)
    try:
        return cli.main(["--config", str(config)])
    finally:
        os.umask(before)


def test_a_user_restores_a_file_and_nobody_else_reads_or_changes_it(home: Path, tmp_path: Path) -> None:
    assert take(home, tmp_path) == cli.OK
    (snapshot,) = (home / ".snapshots").iterdir()
    as_user(ALICE, f"echo gone >{home}/alice/thesis")

    assert as_user(ALICE, f"cp {snapshot}/alice/thesis {home}/alice/").returncode == 0

    assert (home / "alice" / "thesis").read_text(encoding="utf-8") == "chapter one\n"
    assert "Permission denied" in as_user(BOB, f"cat {snapshot}/alice/thesis").stderr
    assert "Read-only file system" in as_user(ALICE, f"echo >{snapshot}/alice/thesis").stderr
    assert "Permission denied" in as_user(ALICE, f"mkdir {home}/.snapshots/2026-11-25_1900").stderr
    # a snapshot holds none of the others
    assert list((snapshot / ".snapshots").iterdir()) == []


def test_what_is_not_kept_is_deleted_and_what_an_administrator_made_stays(home: Path, tmp_path: Path) -> None:
    directory = home / ".snapshots"
    directory.mkdir()
    for name in ("2026-11-01_1200", "2026-11-02_1200", "before-upgrade"):
        snapshot_by_hand(home, directory / name)

    assert take(home, tmp_path, hourly=2, daily=0, weekly=0) == cli.OK

    names = sorted(path.name for path in directory.iterdir())
    assert names[0] == "2026-11-02_1200"
    assert len(names) == 3
    assert names[-1] == "before-upgrade"


def test_a_full_file_system_loses_its_oldest_snapshot_and_says_so(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / ".snapshots").mkdir()
    oldest = home / ".snapshots" / "2026-11-01_1200"
    snapshot_by_hand(home, oldest)

    assert take(home, tmp_path, free_percent=100) == cli.PROBLEMS

    assert "the snapshot 2026-11-01_1200 was deleted before its time" in capfd.readouterr().err
    assert not oldest.exists()

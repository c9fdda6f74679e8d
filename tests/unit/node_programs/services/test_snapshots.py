"""Which snapshots stay, where they are made, and what is called for ZFS."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.snapshots import cli
from deepopsctl.node_programs.services.snapshots.cli import Btrfs, SnapshotError, Zfs, dataset_at, kept, turn
from tests.support.files import write_program

# every hour from the 20th to the 25th
NAMES = [f"2026-11-{day:02}_{hour:02}00" for day in range(20, 26) for hour in range(24)]


def test_the_newest_of_each_hour_day_and_week_stays() -> None:
    stays = kept([*NAMES, "2026-11-25_2330", "2026-11-10_0500"], {"hourly": 2, "daily": 3, "weekly": 3})

    assert sorted(stays) == [
        # of the weeks before
        "2026-11-10_0500", "2026-11-22_2300",
        "2026-11-23_2300", "2026-11-24_2300",
        "2026-11-25_2200", "2026-11-25_2330",
    ]  # fmt: skip


def test_the_newest_stays_whatever_is_wanted() -> None:
    assert kept(NAMES, {"hourly": 0, "daily": 0, "weekly": 0}) == {"2026-11-25_2300"}
    assert kept([], {"hourly": 1, "daily": 1, "weekly": 1}) == set()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that passes for a subvolume."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(cli, "_ROOT_INODE", tmp_path.stat().st_ino)
    return tmp_path


def test_what_is_no_subvolume_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="neither a subvolume of btrfs"):
        Btrfs(str(tmp_path)).prepare()


@pytest.mark.parametrize("damage", ["others can write to it", "it is a link"])
def test_snapshots_are_made_only_where_nobody_can_put_anything_in_their_place(home: Path, damage: str) -> None:
    if damage == "it is a link":
        (home / ".snapshots").symlink_to("/etc")
    else:
        Btrfs(str(home)).prepare()
        (home / ".snapshots").chmod(0o777)

    with pytest.raises(SnapshotError, match="can be changed by others than root"):
        Btrfs(str(home)).prepare()


@pytest.fixture
def zfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a program `zfs`, whose dataset is mounted at home and has two snapshots and two of other names."""
    calls = tmp_path / "calls"
    (tmp_path / "home").mkdir(0o755)
    monkeypatch.setattr(cli, "dataset_at", lambda path: "tank/home")
    shown = "\n".join(
        f"tank/home@{name}" for name in ("2026-11-25_1700", "2026-11-25_1800", "2026-13-45_0000", "before-upgrade")
    )
    program = write_program(tmp_path / "bin/zfs", f'echo "$*" >> {calls}\n[ "$1" != list ] || echo "{shown}"')
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return calls


def test_a_dataset_is_known_by_what_is_mounted_last(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    users = b"u@h: /home/u/a\rb fuse.sshfs rw 0 0\n"
    mounts.write_bytes(users + b"tank/home /home zfs rw 0 0\ntank/x /x zfs rw 0 0\ntmpfs /x tmpfs rw 0 0\n")

    assert [dataset_at(path, str(mounts)) for path in ("/home", "/home/", "/x", "/home/alice")] == [
        "tank/home", "tank/home", "", "",
    ]  # fmt: skip


def test_zfs_takes_one_more_and_destroys_snapshots_of_its_own_alone(tmp_path: Path, zfs: Path) -> None:
    home = tmp_path / "home"

    turn({"path": str(home), "hourly": 1, "daily": 0, "weekly": 0, "free_percent": 0}, datetime(2026, 11, 25, 19))

    shows = "list -H -t snapshot -d 1 -o name tank/home"
    taken = ["snapshot tank/home@2026-11-25_1900", shows, "destroy tank/home@2026-11-25_1700"]
    assert zfs.read_text(encoding="utf-8").splitlines() == [shows, *taken]
    assert (home / ".snapshots").readlink() == Path(".zfs/snapshot")


# those that are kept, and a disk with less free space than is wanted
@pytest.mark.parametrize(
    ("stays", "free_percent", "message"),
    [
        ({"2026-11-25_1900"}, 0, "it is held"),
        (
            {"2026-11-25_1700", "2026-11-25_1800", "2026-11-25_1900"},
            *(101, "it is held; less than 101 % is free: the snapshot 2026-11-25_1800 was deleted before its time"),
        ),
    ],
)
def test_a_snapshot_that_is_held_keeps_no_other(
    tmp_path: Path, zfs: Path, monkeypatch: pytest.MonkeyPatch, stays: set[str], free_percent: int, message: str
) -> None:
    program = tmp_path / "bin/zfs"
    held = '[ "$*" != "destroy tank/home@2026-11-25_1700" ] || { echo "it is held" >&2; exit 1; }\n'
    program.write_text(program.read_text(encoding="utf-8") + held, encoding="utf-8")
    wanted = {"path": str(tmp_path / "home"), "hourly": 0, "daily": 0, "weekly": 0, "free_percent": free_percent}
    monkeypatch.setattr(cli, "kept", lambda names, options: stays)

    with pytest.raises(SnapshotError, match=f"^{message}$"):
        turn(wanted, datetime(2026, 11, 25, 19))
    assert "destroy tank/home@2026-11-25_1800" in zfs.read_text(encoding="utf-8")


def test_a_directory_of_somebody_elses_snapshots_is_left_alone(tmp_path: Path, zfs: Path) -> None:
    (tmp_path / ".snapshots").mkdir()

    with pytest.raises(SnapshotError, match="something else than a link"):
        Zfs(str(tmp_path), "tank/home").prepare()
    assert not zfs.exists()

"""Which snapshots stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.node_programs.snapshots import cli
from deepopsctl.node_programs.snapshots.cli import SnapshotError, kept, prepare

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
    with pytest.raises(SnapshotError, match="no subvolume of btrfs"):
        prepare(str(tmp_path))


@pytest.mark.parametrize("damage", ["others can write to it", "it is a link"])
def test_snapshots_are_made_only_where_nobody_can_put_anything_in_their_place(home: Path, damage: str) -> None:
    if damage == "it is a link":
        (home / ".snapshots").symlink_to("/etc")
    else:
        Path(prepare(str(home))).chmod(0o777)

    with pytest.raises(SnapshotError, match="can be changed by others than root"):
        prepare(str(home))

"""What monitoring has: blocks that Prometheus merges meanwhile, a database that Grafana writes meanwhile."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.node_programs.operations.slurm_backup import MANIFEST, BackupError, monitoring

FIRST, SECOND = "01JDABCDEFGHJKMNPQRSTVWXYZ", "01JDZZZZZZZZZZZZZZZZZZZZZZ"


def block(data: Path, name: str) -> Path:
    (data / name / "chunks").mkdir(parents=True)
    for file in ("meta.json", "index", "chunks/000001"):
        (data / name / file).write_text(f"{name} {file}")
    return data / name


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    for name in (FIRST, SECOND):
        block(directory, name)
    return directory


def test_a_set_has_the_finished_blocks_and_nothing_else(data: Path, tmp_path: Path) -> None:
    block(data, f"{FIRST}.tmp-for-creation")
    (data / "wal").mkdir()
    (data / "lock").touch()

    assert monitoring.copy_blocks(str(data), str(tmp_path / "set")) == [FIRST, SECOND]

    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [FIRST, SECOND]
    assert (tmp_path / "set" / FIRST / "chunks" / "000001").read_text() == f"{FIRST} chunks/000001"


def test_blocks_that_are_merged_meanwhile_are_saved_as_the_new_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, merged = monitoring._copy_block, "01JDMMMMMMMMMMMMMMMMMMMMMM"

    def copy_while_merged(source: str, target: str, owner: int) -> None:
        if source.endswith(SECOND):
            block(data, merged)
            shutil.rmtree(data / FIRST)
            shutil.rmtree(data / SECOND)
        copy(source, target, owner)

    monkeypatch.setattr(monitoring, "_copy_block", copy_while_merged)
    assert monitoring.copy_blocks(str(data), str(tmp_path / "set")) == [merged]
    assert [path.name for path in (tmp_path / "set").iterdir()] == [merged]


def test_no_file_that_a_link_leads_to_and_none_of_another_user_is_saved(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="not a file of Prometheus"):
        monitoring._copy_block(str(data / FIRST), str(tmp_path / "set"), os.getuid() + 1)
    (data / FIRST / "index").unlink()
    (data / FIRST / "index").symlink_to(data / SECOND / "index")
    with pytest.raises(OSError, match="symbolic links"):
        monitoring.copy_blocks(str(data), str(tmp_path / "other"))


def test_a_block_comes_back_whole_or_not_at_all(data: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    # of one that was cut off
    (there / f"{FIRST}.tmp-for-creation").mkdir()

    monitoring._put_block(str(data / FIRST), str(there / FIRST))

    assert [path.name for path in there.iterdir()] == [FIRST]
    assert (there / FIRST / "index").read_text() == f"{FIRST} index"


def test_what_a_set_has_in_addition_to_blocks_does_not_come_into_prometheuss_directory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.setattr(monitoring, "data_directory", lambda: str(there))
    saved = tmp_path / "set"
    data.rename(tmp_path / "blocks")
    saved.mkdir()
    (tmp_path / "blocks").rename(saved / monitoring.BLOCKS)
    (saved / monitoring.BLOCKS / "wal").mkdir()
    monkeypatch.setattr(monitoring, "PROMETHEUS", "none.service")

    monitoring.put_back(str(saved))

    assert sorted(path.name for path in there.iterdir()) == [FIRST, SECOND]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "grafana" / "grafana.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE dashboard (title TEXT)")
        connection.execute("INSERT INTO dashboard VALUES ('mine')")
    monkeypatch.setattr(monitoring, "GRAFANA_DATABASE", str(path))
    monkeypatch.setattr(monitoring, "ADMIN_RECORD", str(tmp_path / "record.json"))
    return path


def titles(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        return [title for (title,) in connection.execute("SELECT title FROM dashboard")]


def test_a_database_is_copied_as_of_before_what_is_not_yet_committed(database: Path, tmp_path: Path) -> None:
    writer = sqlite3.connect(database)
    writer.execute("INSERT INTO dashboard VALUES ('unfinished')")

    monitoring.copy_database(str(database), str(tmp_path / "copy.db"))

    writer.rollback()
    writer.close()
    assert titles(tmp_path / "copy.db") == ["mine"]


def test_a_damaged_database_is_no_backup(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:4096] + b"x" * 4096)
    with pytest.raises(BackupError, match=r"grafana\.db"):
        monitoring.require_whole(str(database))


def test_the_database_that_was_there_is_set_aside(database: Path, tmp_path: Path) -> None:
    monitoring.copy_database(str(database), str(tmp_path / "saved.db"))
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO dashboard VALUES ('newer')")
    (tmp_path / "record.json").touch()

    monitoring._put_database(str(tmp_path / "saved.db"))

    assert titles(database) == ["mine"]
    (aside,) = database.parent.glob("grafana.db.before-restore-*")
    assert titles(aside) == ["mine", "newer"]
    assert not (tmp_path / "record.json").exists()


as_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter, as a rehearsal has it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


def saved_set(directory: Path, database: bytes) -> Path:
    """A set with Grafana's database alone."""
    (directory / monitoring.BLOCKS).mkdir(parents=True)
    (directory / MANIFEST).write_text(json.dumps({"monitoring": {"blocks": [], "grafana": True}}))
    (directory / monitoring.DATABASE).write_bytes(database)
    return directory


@as_root
def test_a_set_is_read_by_programs_without_rights(place: Path) -> None:
    """promtool and SQLite read what others may have changed, and promtool writes next to it."""
    directory, foreign = place / "set", place / "foreign"
    directory.mkdir(mode=0o700)
    foreign.write_text("root's")
    foreign.chmod(0o600)
    (directory / "link").symlink_to(foreign)

    shown = monitoring._read(
        str(directory), ["sh", "-c", f"id -u; touch here; cat {foreign} 2>/dev/null || echo refused"]
    )

    assert shown.split() == [str(pwd.getpwnam("nobody").pw_uid), "refused"]
    assert (directory / "here").exists()
    assert foreign.stat().st_uid == 0


@as_root
def test_a_damaged_database_of_a_set_is_refused(database: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    whole = database.read_bytes()

    assert monitoring.examine(str(saved_set(place / "whole", whole))) == {
        "blocks": 0, "samples": 0, "grafana": True,
    }  # fmt: skip
    with pytest.raises(BackupError, match="can't read the set"):
        monitoring.examine(str(saved_set(place / "damaged", whole[:4096] + b"x" * 4096)))

"""Files that change as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepopsctl import files
from deepopsctl.files import write_atomic


def test_a_pipe_or_a_device_is_no_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"directory|not a file") as refused:
            files.read_file(path)
        assert refused.value.filename == str(path)


def test_a_pipe_of_a_shell_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        stream.write("text\r\n")
    assert files.read_text(Path(f"/dev/fd/{reader}")) == "text\n"
    os.close(reader)


def test_a_file_gets_its_mode_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "new" / "password"

    write_atomic(path, "x", 0o600)

    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["password"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)

    write_atomic(link, "new")

    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_failed_write_leaves_the_old_content_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomic(path, "new")

    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]

"""The one atomic write: what is left of a failure, and what a reader sees."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import atomic_file


@pytest.mark.parametrize("write", [atomic_file.write, atomic_file.write_synced])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    write: Callable[[Path, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int, _mode: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(tmp_path / "a.prom", "x 1\n")
    # a full disk, every 30 s: each of them would leave a file
    with monkeypatch.context() as patched:
        patched.setattr(os, "fchmod", full)
        with pytest.raises(OSError, match=f"No space left on device: .*{tmp_path}/a.prom"):
            write(tmp_path / "a.prom", "x 2\n")
    with pytest.raises(UnicodeEncodeError):
        write(tmp_path / "a.prom", "x 2 \udc80\n")

    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
    assert (tmp_path / "a.prom").read_text() == "x 1\n"


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "in the way").write_text("")

    with pytest.raises(IsADirectoryError) as caught:
        atomic_file.write_synced(tmp_path / "a", "x")

    assert str(tmp_path / "a") in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_prepared_file_is_seen_when_it_is_put_in_place(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.conf"

    temporary = atomic_file.prepare(path, b"x", (os.getuid(), os.getgid()), 0o640)
    before = path.exists()
    atomic_file.put_in_place(temporary, path)

    assert not before
    assert (path.read_text(), path.stat().st_mode & 0o7777) == ("x", 0o640)
    assert [each.name for each in path.parent.iterdir()] == ["a.conf"]

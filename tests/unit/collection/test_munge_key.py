"""A new munge key: that munged has to restart for it is noted first, and check mode writes nothing."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import Call, plugin, raising

munge_key = plugin("modules", "munge_key")


@pytest.fixture
def key(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's key, in a directory of its own."""
    path = tmp_path / "munge.key"
    path.write_bytes(b"old")
    monkeypatch.setattr(munge_key, "MUNGE_KEY", str(path))
    monkeypatch.setattr(munge_key, "PREVIOUS", str(tmp_path / "previous"))
    monkeypatch.setattr(munge_key.node_files, "owner_ids", lambda *_names: (os.getuid(), os.getgid()))
    return path


def swap(*, check: bool = False) -> dict[str, Any]:
    return Call({"action": "swap", "key": base64.b64encode(b"new").decode()}, check=check).run(munge_key)


def test_a_restart_that_was_cut_off_is_done_by_the_next_call(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted: list[object] = []
    monkeypatch.setattr(munge_key, "restart", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        swap()
    monkeypatch.setattr(munge_key, "restart", restarted.append)

    second, third = swap(), swap()

    assert key.read_bytes() == b"new"
    assert len(restarted) == 1
    assert (second["changed"], third["changed"]) == (True, False)


def test_check_mode_changes_no_key_and_shows_none(key: Path) -> None:
    result = swap(check=True)

    assert [change["name"] for change in result["changes"]] == [str(key), "munge.service"]
    assert "new" not in str(result["diff"])
    assert key.read_bytes() == b"old"
    assert [path.name for path in key.parent.iterdir()] == ["munge.key"]

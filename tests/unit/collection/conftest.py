"""What the tests of plugins share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import node_modules as nodeside


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the node's records, here instead of in /var/lib; nothing is in it."""
    directory = tmp_path / "state"
    monkeypatch.setattr(nodeside.load("node.record"), "STATE", str(directory))
    return directory

"""The checks of a login node."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment import login_node


def status() -> str:
    (check,) = login_node.verify_login_node("login1", {"keys_only": False, "message": True})
    return check["status"]


def test_the_first_message_after_a_deploy_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "message"
    monkeypatch.setattr(login_node, "MOTD", str(path))
    late = threading.Timer(0.3, path.touch)
    late.start()

    assert status() == "pass"
    late.join()

    # one that never comes
    path.unlink()
    monkeypatch.setattr(login_node, "FIRST_S", 0)
    assert status() == "fail"

"""The login of clients of the accounting database."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import database


def test_a_login_of_roots_own_is_for_this_hosts_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = tmp_path / "database.cnf"
    monkeypatch.setattr(database, "LOGIN", str(login))

    assert database.client("mariadb", "--batch") == ["mariadb", "--batch"]

    login.touch()
    elsewhere = ["env", "HOME=/nonexistent", "mariadb", f"--defaults-extra-file={login}", "--batch"]
    assert database.client("mariadb", "--batch") == elsewhere

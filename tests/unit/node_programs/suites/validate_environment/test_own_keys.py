"""Whether the deploying user has a key: before a login node refuses passwords."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment.own_keys import has_key, holds_key

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAID9g5QaDGrro5NfQ6yKtepUYNVtLNGlDmGZ0z1nYGSJ5 alice@laptop"


@pytest.mark.parametrize(
    ("text", "expected"),
    [(f"{KEY}\n", True), (f'from="192.0.2.1",no-pty {KEY}\n', True), (f"# {KEY}\n\n", False), ("", False)],
)
def test_only_a_line_with_a_key_is_one(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "keys").write_text(text, encoding="utf-8")

    assert holds_key(str(tmp_path / "keys")) is expected


def test_without_a_file_or_a_user_there_is_none(tmp_path: Path) -> None:
    assert not holds_key(str(tmp_path / "missing"))
    assert not has_key("nobody-of-this-name")

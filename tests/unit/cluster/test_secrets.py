"""Changing values of a vault leaves everything else in it as a person wrote it."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from deepopsctl.cluster.secrets import add_missing, change, encrypt, read, with_values
from deepopsctl.errors import ControlMachineError, InputError

Files = tuple[Path, Path]
TEXT = """\
---
# by ada
munge_key: "b2xk"  # of 2024
munge_key_next: >-
  folded
  text
cluster_authority: |
  -----BEGIN
  -----END
monitoring_alert_secrets: {mail: x}
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Where the vault and its password are: `pw`."""
    (tmp_path / "password").write_text("pw\n")
    return tmp_path / "secrets.yml", tmp_path / "password"


def vault(plain: str) -> str:
    return str(VaultLib([("default", VaultSecret(b"pw"))]).encrypt(plain).decode())


def test_a_value_is_replaced_removed_or_added_and_the_rest_stays() -> None:
    text = with_values(TEXT, {"munge_key": "bmV3", "munge_key_next": None, "slurm_dbd_password": "p"})

    assert text.splitlines()[:3] == ["---", "# by ada", 'munge_key: "bmV3"  # of 2024']
    before = yaml.safe_load(TEXT)
    del before["munge_key_next"]
    assert yaml.safe_load(text) == {**before, "munge_key": "bmV3", "slurm_dbd_password": "p"}


def test_a_multi_line_value_and_an_empty_one_are_replaced() -> None:
    text = with_values("a: |\n  x\n  y\nb:\nc: 1\n", {"a": "new", "b": "word"})

    assert yaml.safe_load(text) == {"a": "new", "b": "word", "c": 1}


@pytest.mark.parametrize("text", ["munge_key: b2xk\n", None])
def test_a_vault_that_is_missing_or_open_is_refused_before_anything_is_written(files: Files, text: str | None) -> None:
    path, password = files
    if text:
        path.write_text(text)

    with pytest.raises(ControlMachineError, match=r"secrets\.yml"):
        change(path, password, {"munge_key": "x"})

    assert (path.read_text() if text else None) == text


def test_a_vault_with_broken_yaml_is_refused_without_quoting_a_secret(files: Files) -> None:
    path, password = files

    for plain in ("munge_key: *hidden\n", "a: 1\nmunge_key: 'hidden\n", "- hidden\n"):
        path.write_text(vault(plain))
        for use in (add_missing, read, lambda path, password: change(path, password, {"munge_key": "x"})):
            with pytest.raises(InputError, match=r"^secrets\.yml.*are not variables in valid YAML$") as caught:
                use(path, password)
            assert "hidden" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", ["{munge_key: b2xk}\n", "munge_key: b2xk\n...\n", "# nothing yet\n"])
def test_missing_secrets_are_added_to_a_vault_in_any_style(files: Files, text: str) -> None:
    path, password = files
    path.write_text(vault(text))

    assert "backup_password" in add_missing(path, password)
    assert {"backup_password", "munge_key"} <= read(path, password).keys()


def test_a_tag_of_ansible_in_a_vault_is_no_part_of_the_value(files: Files) -> None:
    path, password = files
    path.write_text(vault("slurm_dbd_password: !unsafe a{{b\n"))

    add_missing(path, password)

    assert read(path, password)["slurm_dbd_password"] == "a{{b"


def test_what_was_changed_is_read_back_from_a_private_file(files: Files) -> None:
    path, password = files
    # a person's own, in another encoding
    password.write_bytes("Schlüssel\n".encode("latin-1"))
    path.write_text(encrypt({"munge_key": "old"}, "Schlüssel".encode("latin-1")))

    change(path, password, {"munge_key": "new"})

    assert read(path, password) == {"munge_key": "new"}
    assert path.stat().st_mode & 0o777 == 0o600

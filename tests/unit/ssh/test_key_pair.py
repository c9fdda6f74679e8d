from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from deepopsctl.errors import InputError
from deepopsctl.ssh.key_pair import ensure_key_pair, public_line


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "id_ed25519"


def test_makes_a_private_pair_that_names_the_cluster(private: Path) -> None:
    pair = ensure_key_pair(private, "deepopsctl cluster hpc")
    assert pair.created
    assert pair.public.startswith("ssh-ed25519 ")
    assert pair.public.endswith(" deepopsctl cluster hpc")
    assert (mode(private.parent), mode(private)) == (0o700, 0o600)
    assert sorted(path.name for path in private.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_keeps_a_pair_that_is_there(private: Path) -> None:
    first = ensure_key_pair(private, "one")
    second = ensure_key_pair(private, "two")
    assert not second.created
    assert second.public == first.public


def test_puts_modes_right_that_a_checkout_made_too_wide(private: Path) -> None:
    ensure_key_pair(private, "one")
    private.chmod(0o644)
    private.parent.chmod(0o755)
    ensure_key_pair(private, "one")
    assert (mode(private.parent), mode(private)) == (0o700, 0o600)


def test_works_out_the_public_half_where_its_file_is_missing(private: Path) -> None:
    first = ensure_key_pair(private, "one")
    private.with_name("id_ed25519.pub").unlink()
    assert ensure_key_pair(private, "one").public.split()[:2] == first.public.split()[:2]


def test_makes_a_new_pair_where_an_interrupted_run_left_only_the_public_half(private: Path) -> None:
    first = ensure_key_pair(private, "one")
    private.unlink()
    second = ensure_key_pair(private, "one")
    assert second.created
    assert second.public != first.public


def test_refuses_a_key_it_cannot_read_and_says_which(tmp_path: Path) -> None:
    private = tmp_path / "key"
    private.write_text("no key")
    private.chmod(0o600)
    with pytest.raises(InputError, match=str(private)):
        public_line(private)


def test_does_not_ask_for_the_passphrase_of_an_encrypted_key(tmp_path: Path) -> None:
    private = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(private)], check=True)
    assert public_line(private).startswith("ssh-ed25519 ")
    private.with_name("key.pub").unlink()
    with pytest.raises(InputError, match="can't read"):
        public_line(private)

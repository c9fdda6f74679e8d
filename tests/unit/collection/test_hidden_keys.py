"""Whether a new mount would hide the keys of the user who deploys: tried for real, in a mount namespace of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import hidden_keys

USER = "nobody"
NAMESPACES = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
needs_root = pytest.mark.skipif(not NAMESPACES, reason="needs root and mount namespaces")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with keys, and a storage that is to be mounted over it, without."""
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if str(directory).startswith("/tmp/"):
            directory.chmod(0o755)
    (tmp_path / "home" / "ann").mkdir(parents=True)
    (tmp_path / "home" / "ann" / "keys").write_text("ssh-ed25519 AAAA\n")
    (tmp_path / "storage").mkdir()
    return tmp_path / "home"


def mount(home: Path, what: str = "", fstype: str = "none", options: str = "bind") -> dict[str, str]:
    source = what or str(home.parent / "storage")
    return {"name": "homes", "path": str(home), "text": f"[Mount]\nWhat={source}\nType={fstype}\nOptions={options}\n"}


def keys(home: Path) -> tuple[str, str]:
    return (USER, str(home / "ann" / "keys"))


@needs_root
def test_a_storage_without_the_keys_is_refused_and_nothing_stays_mounted(home: Path) -> None:
    before = Path("/proc/self/mounts").read_text()

    message, hint = hidden_keys.refusal(mount(home), keys(home))

    assert message == f"storage homes would hide {home}/ann/keys, and no user could log in here any more"
    assert "put the keys into that storage first" in hint
    assert Path("/proc/self/mounts").read_text() == before
    assert (home / "ann" / "keys").exists()


@needs_root
def test_a_storage_with_keys_that_their_owner_can_read_is_not(home: Path) -> None:
    (home.parent / "storage" / "ann").mkdir()
    there = home.parent / "storage" / "ann" / "keys"
    there.write_text("x")

    assert hidden_keys.refusal(mount(home), keys(home)) == ()
    # root's own look would find it
    there.chmod(0o600)
    assert hidden_keys.refusal(mount(home), keys(home)) != ()


@needs_root
def test_a_storage_that_can_not_be_mounted_is_said_to_be_unknown(home: Path) -> None:
    with pytest.raises(
        hidden_keys.UnknownError, match=r"storage homes comes over .*/keys; the deploy is refused where"
    ):
        hidden_keys.refusal(mount(home, "/nowhere"), keys(home))


def test_a_mount_elsewhere_hides_nothing(home: Path) -> None:
    assert hidden_keys.refusal(mount(home), (USER, "/etc/passwd")) == ()
    assert hidden_keys.refusal(mount(home), ()) == ()
    # no directory of that name's beginning
    assert not hidden_keys.below(str(home), f"{home}s/ann/keys")

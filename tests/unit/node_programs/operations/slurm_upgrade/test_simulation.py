"""apt's own word on packages of a repository that is not on the node: nothing of it may stay there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deepopsctl.node_programs.operations.slurm_upgrade import transaction

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not on this machine")
NAME = "deepopsctl-test-package"


def index(depends: str) -> str:
    """apt's index of one package."""
    return (
        f"Package: {NAME}\nVersion: 26.05.5-1\nArchitecture: all\nMaintainer: x <x@example.com>\nDepends: {depends}\n"
        f"Filename: pool/{NAME}.deb\nSize: 1\nSHA256: {'0' * 64}\nDescription: x\n\n"
    )


def sources() -> dict[Path, bytes]:
    places = (Path("/etc/apt"), Path("/var/lib/apt/lists"))
    return {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("depends", "version", "word"),
    [
        ("base-files", "26.05.5-1", ""),
        ("base-files, no-such-library (>= 9)", "26.05.5-1", "no-such-library"),
        ("base-files", "27.11.1-1", "27.11.1-1"),
    ],
)
def test_packages_that_apt_can_not_install_are_named_before_anything_is_changed(
    depends: str, version: str, word: str
) -> None:
    before = sources()

    why = transaction.obstacle({NAME: version}, index(depends))

    assert bool(why) is bool(word), why
    assert word in why
    assert "deepopsctl-apt-" not in why
    assert sources() == before


def test_a_refused_upgrade_leaves_no_preference_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("pins", "sources")]
    files[0].write_text("Pin-Priority: 1001")
    monkeypatch.setattr(transaction, "OWN", tuple(map(str, files)))

    assert transaction.withdraw()
    assert not any(path.exists() for path in files)
    assert not transaction.withdraw()

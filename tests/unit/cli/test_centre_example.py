"""inventory/centre: the three files that a centre copies are read as they are, and everything in them is known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.environment.shares import dominating
from tests.support.paths import ROOT

CENTRE = ROOT / "inventory" / "centre"
COPIES = {"cluster.yml": "", "people.yml": "", "settings.yml": "inventory/group_vars/all"}


@pytest.fixture
def centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    """The directory as the first lines of cluster.yml make it."""
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["init", "centre", "--controller", "ctl1", "--compute", "g[01-04]"]) == 0
    for name, place in COPIES.items():
        shutil.copy(CENTRE / name, tmp_path / "centre" / place / name)
    return ClusterDir(tmp_path / "centre")


def test_the_files_are_read_and_nothing_in_them_is_unknown(
    centre: ClusterDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["-C", str(centre.path), "inventory"]) == 0

    shown = capsys.readouterr()
    assert "slurm_login" in shown.out
    # no misspelt setting, no account with all the shares; but where the deploying user's home has to be
    assert shown.err.count("warning") == 1
    assert "give ubuntu a home on the nodes' own disks" in shown.err


def test_it_has_what_a_centre_offers(centre: ClusterDir) -> None:
    cluster = centre.cluster()

    assert {space.name for space in cluster.spaces} == {"home", "scratch", "project"}
    assert cluster.policy.billing is not None
    assert cluster.people is not None
    assert {group.name for group in cluster.people.groups} >= {"def-curie", "rrg-curie"}
    assert len(cluster.controllers) == 2
    assert list(dominating(cluster)) == []


def test_its_first_lines_are_the_commands_that_make_it() -> None:
    text = (CENTRE / "cluster.yml").read_text(encoding="utf-8")

    assert "deepopsctl init centre --controller ctl1 --compute 'g[01-04]'" in text
    assert all(f"inventory/centre/{name}" in text for name in COPIES)

"""The guides show what `init` really says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from tests.lab import foreign_slurm as handmade
from tests.support.paths import ROOT

PAGES = ROOT / "docs" / "migrate"


def shown(guide: str, command: str) -> list[str]:
    """The lines that a guide shows below a command, without the directory that is everybody's own and gaps (`...`)."""
    text = (PAGES / guide).read_text()
    match = re.search(rf"^\$ deepopsctl {re.escape(command)}\n(.*?)(?:^\$|^```)", text, re.DOTALL | re.MULTILINE)
    assert match, f"{guide} does not show {command}"
    return [line for line in match[1].splitlines() if "/home/ada" not in line and line.strip() != "..."]


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    run_command_line(command.split())
    captured = capsys.readouterr()
    return (captured.out + captured.err).splitlines()


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_coming_from_deepops(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "inventory" / "deepops", directory / "config")
    command = "init alpha --from config --gpus h100:8"

    assert set(shown("deepops.md", command)) <= set(printed(command, capsys))


def test_a_placeholder_password(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "inventory" / "deepops", directory / "config")
    variables = directory / "config" / "group_vars" / "slurm-cluster.yml"
    text = variables.read_text()
    variables.write_text(text.replace("not-the-placeholder", "AlsoReplaceWithASecurePasswordInTheVault"))

    assert printed("init beta --from config", capsys) == shown("deepops.md", "init beta --from config")


def test_a_slurm_conf_that_was_made_by_hand(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = "192.0.2.1 ctl1\n192.0.2.11 gpu01\n192.0.2.12 gpu02\n"
    files = {"slurm.conf": handmade.SLURM_CONF, "nodes.conf": handmade.NODES_CONF, "gres.conf": handmade.GRES_CONF}
    for name, text in {**files, "hosts": hosts}.items():
        (directory / name).write_text(text)
    command = "init hand --from slurm.conf --addresses hosts --user ubuntu"

    assert set(shown("takeover.md", command)) <= set(printed(command, capsys))

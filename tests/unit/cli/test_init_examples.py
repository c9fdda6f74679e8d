"""The annotated examples in inventory/: each one's own command works, and all give the same cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.editor_schemas import first_line
from deepopsctl.cluster.inventory import render_inventory
from tests.support.paths import ROOT

EXAMPLES = ROOT / "inventory"
NODE_LISTS = sorted(EXAMPLES.joinpath("node-lists").iterdir())
README = EXAMPLES / "README.md"


def command_in(path: Path) -> list[str]:
    """The arguments of the deepopsctl command that a file shows."""
    text = path.read_text().replace("\\\n", " ")
    match = re.search(r"deepopsctl (init example .*)", text)
    assert match, f"{path.name} shows no command"
    return shlex.split(match[1])


@pytest.mark.parametrize("path", [*NODE_LISTS, README], ids=lambda path: path.name)
def test_the_command_in_each_example_makes_the_example_cluster(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = command_in(path)
    if "--from" in arguments:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert run_command_line(arguments) == 0
    made, stored = ClusterDir(tmp_path / "example"), ClusterDir(EXAMPLES / "example")
    assert made.spec.read_text() == first_line("cluster") + stored.spec.read_text()
    assert made.hosts.read_text() == stored.hosts.read_text()


@pytest.mark.parametrize("name", ["one-dgx", "university", "mixed", "storage", "file-systems", "vms"])
def test_the_kept_inventory_is_what_the_code_writes(name: str) -> None:
    directory = ClusterDir.open(EXAMPLES / name)
    assert directory.hosts.read_text() == render_inventory(directory.cluster())


def test_the_example_holds_no_secrets() -> None:
    names = {path.name for path in EXAMPLES.rglob("*")}
    assert names.isdisjoint({"secrets.yml", ".vault-password", "ssh", "runs", "known_hosts"})

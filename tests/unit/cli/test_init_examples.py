"""The annotated examples in inventory/: each one's own command works, and all give the same cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from deepopsctl.cli.main import run
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.cluster.spec import parse_spec
from tests.support.paths import ROOT

EXAMPLES = ROOT / "inventory"
NODE_LISTS = sorted(EXAMPLES.joinpath("node-lists").iterdir())
REFERENCE = EXAMPLES.parent / "docs" / "reference"
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
    assert run(arguments) == 0
    made, stored = ClusterDir(tmp_path / "example"), ClusterDir(EXAMPLES / "example")
    assert made.spec.read_text() == stored.spec.read_text()
    assert made.hosts.read_text() == stored.hosts.read_text()


def test_the_cluster_file_and_the_command_in_the_reference_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = (REFERENCE / "cluster-yml.md").read_text()
    shown, gpus, policy, storage = re.findall(r"```yaml\n(.*?)```", reference, re.DOTALL)
    (command,) = re.findall(r"```\ndeepopsctl (init .*?)\n```", (REFERENCE / "node-lists.md").read_text())
    assert len(parse_spec(shown, "cluster.yml").nodes) == 18
    with_gpus = gpus.replace("nodes:", "schema: 1\nnodes:\n  - {names: ctl1, roles: [controller]}")
    assert [node.gpus and node.gpus.count for node in parse_spec(with_gpus, "").nodes] == [None, 4, 2]
    assert len(parse_spec(shown + policy, "cluster.yml").policy.accounts) == 2
    assert [len(mount.nodes) for mount in parse_spec(shown + storage, "cluster.yml").storage] == [17, 17, 16, 4]
    assert run(shlex.split(command)) == 0


@pytest.mark.parametrize("name", ["example", "one-dgx", "university", "mixed", "storage", "file-systems", "vms"])
def test_the_kept_inventory_is_what_the_code_writes(name: str) -> None:
    directory = ClusterDir.open(EXAMPLES / name)
    assert directory.hosts.read_text() == render_inventory(directory.cluster())


def test_every_form_has_an_example() -> None:
    assert [path.name for path in NODE_LISTS] == [
        "cluster.yml",
        "hostlist.txt",
        "hosts",
        "machines.csv",
        "machines.tsv",
    ]


def test_the_example_holds_no_secrets() -> None:
    names = {path.name for path in EXAMPLES.rglob("*")}
    assert names.isdisjoint({"secrets.yml", ".vault-password", "ssh", "runs", "known_hosts"})

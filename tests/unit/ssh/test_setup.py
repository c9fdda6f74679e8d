from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deepopsctl.cli.main import cli
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import InputError
from deepopsctl.ssh.key_pair import ensure_key_pair
from deepopsctl.ssh.setup import cluster_key


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "cluster"
    done = CliRunner().invoke(
        cli, ["init", str(made), "--controller", "ctl1=127.0.0.1", "--compute", "gpu01=127.0.0.2"]
    )
    assert done.exit_code == 0, done.output
    return made


def test_the_configuration_is_printed_alone_on_stdout(directory: Path) -> None:
    done = CliRunner().invoke(cli, ["-C", str(directory), "ssh", "config", "--user", "ada"])
    assert done.exit_code == 0
    assert "Host gpu??\n    ProxyJump ctl1\n    User ada\n" in done.stdout


def test_nothing_is_made_where_the_limit_is_wrong(directory: Path) -> None:
    done = CliRunner().invoke(cli, ["-C", str(directory), "ssh", "setup", "--limit", "gpu99"])
    assert isinstance(done.exception, InputError)
    assert not (directory / "ssh" / "id_ed25519").exists()


def test_a_password_is_not_asked_for_without_a_terminal(directory: Path) -> None:
    done = CliRunner().invoke(cli, ["-C", str(directory), "ssh", "setup", "--ask-pass"], standalone_mode=False)
    assert isinstance(done.exception, click.UsageError)


def test_nodes_where_nothing_listens_are_unreachable_and_nothing_is_pinned(directory: Path) -> None:
    arguments = ["-C", str(directory), "ssh", "setup", "--json", "--connect-timeout", "2"]
    spec = directory / "cluster.yml"
    # port 1: nothing serves it
    spec.write_text(spec.read_text().replace("cluster: {", "cluster: {port: 1, "))
    done = CliRunner().invoke(cli, arguments)
    document = json.loads(done.stdout)
    assert done.exit_code == 4
    assert {node["status"] for node in document["nodes"]} == {"unreachable"}
    assert (directory / "known_hosts").read_text() == ""


def test_a_key_that_cluster_yml_names_is_used_and_none_is_made(directory: Path, tmp_path: Path) -> None:
    own = ensure_key_pair(tmp_path / "keys" / "mine", "mine")
    spec = directory / "cluster.yml"
    spec.write_text(spec.read_text().replace("cluster: {", f"cluster: {{key: {own.private}, "))
    result = ClusterDir.open(directory)
    pair = cluster_key(result, result.cluster())
    assert (pair.private, pair.public, pair.created) == (own.private, own.public, False)

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deepopsctl.cli.main import cli
from deepopsctl.cluster.ssh_login import Target, inventory_option, jump_login, jump_names, jump_target, proxy_command
from deepopsctl.errors import InputError
from deepopsctl.model.cluster import Access, Cluster, Node, Role
from deepopsctl.ssh.client import Client, read_route
from deepopsctl.ssh.passwords import read_password
from deepopsctl.ssh.results import (
    NodeResult,
    SetupResult,
    Status,
    Sudo,
    hints,
    result_object,
    summary_line,
    table_lines,
)
from deepopsctl.ssh.setup import cluster_key

CLUSTER = Cluster(
    "hpc",
    Access("ubuntu"),
    (
        Node("ctl1", frozenset({Role.CONTROLLER})),
        Node("gpu01", frozenset({Role.COMPUTE})),
        Node("gpu02", frozenset({Role.COMPUTE})),
    ),
    (),
)


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "password"
        file.write_text(text)
        file.chmod(0o600)
        return file

    return write


def test_reads_the_first_line_of_a_password_file(secret: Callable[[str], Path]) -> None:
    assert read_password(secret(" with blanks and ü \r\nsecond line\n")) == " with blanks and ü "


@pytest.mark.parametrize("text", ["", "\n", "\nsecond line\n"])
def test_refuses_a_password_file_without_a_password(secret: Callable[[str], Path], text: str) -> None:
    with pytest.raises(InputError, match="no password"):
        read_password(secret(text))


def test_refuses_a_password_file_that_others_can_read(secret: Callable[[str], Path]) -> None:
    file = secret("secret\n")
    file.chmod(0o640)
    with pytest.raises(InputError) as caught:
        read_password(file)
    assert caught.value.hint == f"chmod 600 {file}"


def test_takes_a_password_from_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"secret\n")
    os.close(writing)
    assert read_password(Path(f"/dev/fd/{reading}")) == "secret"
    os.close(reading)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("bastion", Target("bastion", "bastion")),
        ("ada@bastion.example.com:2022", Target("bastion.example.com", "bastion.example.com", "ada", 2022)),
    ],
)
def test_reads_jump_hosts_as_ssh_does(text: str, target: Target) -> None:
    assert jump_target(text) == target


def test_jump_hosts_go_one_behind_the_other() -> None:
    assert jump_names("a@one,two:22") == ("one", "two")
    assert jump_names("") == ()


@pytest.mark.parametrize("folder", ["plain", "with blank", "100%h", "it's"])
def test_ssh_understands_the_proxy_command_whatever_the_path(tmp_path: Path, folder: str) -> None:
    known_hosts = tmp_path / folder / "known_hosts"
    known_hosts.parent.mkdir()
    client = Client(known_hosts)
    login = [*client.options(), *jump_login(str(known_hosts.with_name("key")))]
    inner = proxy_command(login, Target("one", "one", "ada", 2022))
    outer = proxy_command(login, Target("two", "two", proxy=inner))
    assert client.route(Target("gpu01", "gpu01", proxy=outer)).direct is False


def test_the_proxy_command_runs_an_ssh_that_knows_the_hop(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    option = inventory_option("ada@bastion:2022", str(folder / "key"), str(folder / "known_hosts"))
    _, proxy = shlex.split(option)
    # what the outer ssh does: expand, then run it by a shell
    command = proxy.removeprefix("ProxyCommand=").replace("%h", "gpu01").replace("%p", "22").replace("%%", "%")
    shown = subprocess.run(
        ["sh", "-c", command.replace("ssh", "ssh -G", 1)], capture_output=True, text=True, check=True
    )
    lines = shown.stdout.splitlines()
    assert {"hostname bastion", "port 2022", "user ada", "batchmode yes"} <= set(lines)
    assert f"userknownhostsfile {folder}/known_hosts ~/.ssh/known_hosts" in shown.stdout.replace(str(Path.home()), "~")
    identities = [line.partition(" ")[2] for line in lines if line.startswith("identityfile")]
    assert identities[0] == f"{folder}/key"
    assert "~/.ssh/id_ed25519" in identities


def test_a_route_knows_whether_there_is_a_key_to_try(tmp_path: Path) -> None:
    key = tmp_path / "id_ed25519"
    output = f"user ada\nhostname gpu01\nport 2222\nidentityfile {key}\nidentityfile /nonexistent\n"
    assert not read_route(output, {}).keys
    assert read_route(output, {"SSH_AUTH_SOCK": "/run/agent"}).keys
    key.touch()
    route = read_route(output, {})
    assert (route.user, route.host, route.port, route.direct, route.keys) == ("ada", "gpu01", 2222, True, True)


def test_a_route_through_a_persons_own_jump_host_is_not_direct() -> None:
    assert not read_route("user ada\nhostname gpu01\nport 22\nproxyjump bastion\n", {}).direct


RESULT = SetupResult(
    (
        NodeResult("ctl1", Status.READY, changed=True, sudo=Sudo.PASSWORDLESS, message="key installed"),
        NodeResult("gpu01", Status.UNREACHABLE, message="no route to host", hint="is it on?"),
        NodeResult("gpu02", Status.READY, changed=True, sudo=Sudo.PASSWORDLESS, message="key installed"),
        NodeResult("gpu03", Status.UNREACHABLE, message="no route to host", hint="is it on?"),
    )
)


def test_the_table_folds_nodes_with_the_same_news_and_puts_failures_last() -> None:
    assert table_lines(RESULT) == [
        "NODES       STATUS       SUDO          NOTE",
        "ctl1,gpu02  ready        passwordless  key installed",
        "gpu[01,03]  unreachable  -             no route to host",
    ]


def test_a_hint_is_said_once_for_all_its_nodes() -> None:
    assert hints(RESULT) == ["gpu[01,03]: is it on?"]


def test_the_verdict_counts() -> None:
    assert summary_line(RESULT) == "2 ready, 2 unreachable; 2 changed"


def test_the_json_object_names_every_node() -> None:
    document = result_object(RESULT)
    assert (document["schema"], document["command"], document["ok"]) == (1, "ssh setup", False)
    assert json.loads(json.dumps(document))["nodes"][1] == {
        "name": "gpu01",
        "ok": False,
        "changed": False,
        "status": "unreachable",
        "sudo": "",
        "message": "no route to host",
        "hint": "is it on?",
    }


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
    assert "Host gpu01\n    HostName 127.0.0.2\n    User ada\n    ProxyJump ctl1\n" in done.stdout


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
    # port 1: nobody serves it
    spec.write_text(spec.read_text().replace("cluster: {", "cluster: {port: 1, "))
    done = CliRunner().invoke(cli, arguments)
    document = json.loads(done.stdout)
    assert done.exit_code == 4
    assert {node["status"] for node in document["nodes"]} == {"unreachable"}
    assert (directory / "known_hosts").read_text() == ""


def test_a_key_that_cluster_yml_names_is_used_and_none_is_made(directory: Path, tmp_path: Path) -> None:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.ssh.key_pair import ensure_key_pair

    own = ensure_key_pair(tmp_path / "keys" / "mine", "mine")
    spec = directory / "cluster.yml"
    spec.write_text(spec.read_text().replace("cluster: {", f"cluster: {{key: {own.private}, "))
    found = ClusterDir.open(directory)
    pair = cluster_key(found, found.cluster())
    assert (pair.private, pair.public, pair.created) == (own.private, own.public, False)

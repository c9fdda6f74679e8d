from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from deepopsctl.cluster.ssh_login import Target, inventory_option, jump_login, jump_names, jump_target, proxy_command
from deepopsctl.ssh.client import Client


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


@pytest.mark.parametrize("directory", ["plain", "with blank", "100%h", "it's"])
def test_ssh_understands_the_proxy_command_whatever_the_path(tmp_path: Path, directory: str) -> None:
    known_hosts = tmp_path / directory / "known_hosts"
    known_hosts.parent.mkdir()
    client = Client(known_hosts)
    login = [*client.options(), *jump_login(str(known_hosts.with_name("key")))]
    inner = proxy_command(login, Target("one", "one", "ada", 2022))
    outer = proxy_command(login, Target("two", "two", proxy=inner))
    assert client.route(Target("gpu01", "gpu01", proxy=outer)).direct is False


def test_the_proxy_command_runs_an_ssh_that_knows_the_hop(tmp_path: Path) -> None:
    directory = tmp_path / "with blank"
    directory.mkdir()
    option = inventory_option("ada@bastion:2022", str(directory / "key"), str(directory / "known_hosts"))
    _, proxy = shlex.split(option)
    # what the outer ssh does: expand, then run it by a shell
    command = proxy.removeprefix("ProxyCommand=").replace("%h", "gpu01").replace("%p", "22").replace("%%", "%")
    shown = subprocess.run(
        ["sh", "-c", command.replace("ssh", "ssh -G", 1)], capture_output=True, text=True, check=True
    )
    lines = shown.stdout.splitlines()
    assert {"hostname bastion", "port 2022", "user ada", "batchmode yes"} <= set(lines)
    assert f"userknownhostsfile {directory}/known_hosts ~/.ssh/known_hosts" in shown.stdout.replace(
        str(Path.home()), "~"
    )
    identities = [line.partition(" ")[2] for line in lines if line.startswith("identityfile")]
    assert identities[0] == f"{directory}/key"
    assert "~/.ssh/id_ed25519" in identities

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from deepopsctl.cluster.ssh_login import (
    CONFINED,
    Target,
    inventory_option,
    jump_login,
    jump_names,
    jump_target,
    options,
    proxy_command,
    withheld,
)
from deepopsctl.run.request import IMPATIENT_SSH, USUAL_SSH, ssh_arguments
from deepopsctl.ssh.client import Client
from deepopsctl.text.values import check_jump_host
from tests.support.files import write_program

HOSTILE = """\
Host *
    ForwardAgent yes
    ForwardX11 yes
    ForwardX11Trusted yes
    PermitLocalCommand yes
    LocalCommand touch /tmp/x
    RemoteCommand touch /tmp/x
    RemoteForward 2000 127.0.0.1:22
    GSSAPIDelegateCredentials yes
    AddKeysToAgent yes
    Tunnel yes
    UpdateHostKeys yes
    SetEnv SECRET=1
Match user nobody
    SendEnv NEVER
Host gpu*
    SendEnv SITE_* *TOKEN* HOME
"""


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("bastion", Target("bastion", "bastion")),
        ("ada@bastion.example.com:2022", Target("bastion.example.com", "bastion.example.com", "ada", 2022)),
        ("[2001:db8::1]", Target("2001:db8::1", "2001:db8::1")),
        ("ada@[2001:db8::1]:2022", Target("2001:db8::1", "2001:db8::1", "ada", 2022)),
    ],
)
def test_reads_jump_hosts_as_ssh_does(text: str, target: Target) -> None:
    assert jump_target(check_jump_host(text)) == target


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
    target = Target("gpu01", "gpu01", proxy=outer)
    assert client.route(target).host == "gpu01"
    words = ["ssh", "-G", *client.options(), *target.arguments()]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "\nproxycommand ssh " in shown


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


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ssh that reads this as the person's configuration: it finds the real one in the user database."""
    config = tmp_path / "config"
    config.write_text(HOSTILE)
    path = write_program(tmp_path / "bin" / "ssh", f'exec {shutil.which("ssh")} -F {config} "$@"').parent
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("call", ["commands", "setup", "ansible", "queries"])
def test_the_persons_own_configuration_gives_nothing_to_a_node(tmp_path: Path, call: str) -> None:
    known_hosts = tmp_path / "known_hosts"
    arguments = {
        "commands": lambda: options(dict(CONFINED)),
        "setup": lambda: Client(known_hosts).options(),
        "ansible": lambda: shlex.split(ssh_arguments(known_hosts, USUAL_SSH)),
        "queries": lambda: shlex.split(ssh_arguments(known_hosts, IMPATIENT_SSH)),
    }[call]()

    shown = subprocess.run(["ssh", "-G", *arguments, "gpu01"], capture_output=True, text=True, check=True)

    lines = set(shown.stdout.splitlines())
    assert {"forwardagent no", "forwardx11 no", "clearallforwardings yes", "permitlocalcommand no"} <= lines
    assert {"gssapidelegatecredentials no", "tunnel false", "addkeystoagent false", "updatehostkeys false"} <= lines
    assert not any("SECRET" in line or line.startswith(("remotecommand", "remoteforward")) for line in lines)


@pytest.mark.usefixtures("hostile")
def test_variables_that_would_be_sent_are_known_by_the_host_and_those_that_ssh_needs_stay() -> None:
    names = ["HOME", "PATH", "SITE_SECRET", "MY_TOKEN", "NEVER", "OTHER", "SSH_AUTH_SOCK"]

    assert withheld([Target("ctl1", "ctl1"), Target("gpu01", "gpu01")], names) == ["MY_TOKEN", "SITE_SECRET"]
    assert withheld([Target("ctl1", "ctl1")], names) == []

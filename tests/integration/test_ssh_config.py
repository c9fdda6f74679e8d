"""What ~/.ssh/config says must not reach a node: tried with the real ssh and an sshd of its own on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.ssh_login import Target, inventory_option, withheld, without_variables
from deepopsctl.cluster.way import Way
from deepopsctl.run import fan_out
from deepopsctl.run.request import IMPATIENT_SSH, USUAL_SSH, ssh_arguments
from deepopsctl.ssh.client import Client
from deepopsctl.ssh.node_command import ask, command_on
from deepopsctl.ssh.remote_scripts import Script
from deepopsctl.ssh.session import key_login
from tests.support.cluster import wait_until
from tests.support.files import write_program

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(SSHD is None or os.getuid() != 0, reason="needs sshd, and root to serve logins with it")

# everything that ssh may give away, or do besides its task; `match` decides for whom
HOSTILE = """\
Host *
    ForwardAgent yes
    ForwardX11 yes
    ForwardX11Trusted yes
    PermitLocalCommand yes
    LocalCommand touch {directory}/local-command
    RemoteForward {free} 127.0.0.1:22
    LocalForward {free} 127.0.0.1:22
    DynamicForward {dynamic}
    SendEnv SITE_* *TOKEN*
    SetEnv SITE_FIXED=known
    RemoteCommand touch {directory}/remote-command
    GSSAPIDelegateCredentials yes
    AddKeysToAgent yes
    ControlMaster auto
    ControlPath {directory}/own-%C
    ControlPersist 60
"""
ASK = "echo agent=$SSH_AUTH_SOCK display=$DISPLAY site=$SITE_SECRET token=$MY_TOKEN fixed=$SITE_FIXED here"
NOTHING = "agent= display= site= token= fixed= here"


@dataclass(frozen=True)
class Host:
    """This machine as a node, by an sshd that accepts all that a client offers."""

    directory: Path
    cluster: ClusterDir
    port: int
    free: int

    def leaks(self) -> list[str]:
        """What the person's configuration has done."""
        names = ("local-command", "remote-command")
        done = [name for name in names if (self.directory / name).exists()]
        agent = subprocess.run(["ssh-add", "-l"], capture_output=True, text=True)
        done += ["a key in the agent"] if "ED25519" in agent.stdout else []
        return done + [path.name for path in self.directory.glob("own-*")]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def key_at(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_name(path.name + ".pub").read_text(encoding="utf-8")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # sockets have short paths
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    cluster = tmp_path / "hpc"
    (cluster / "ssh").mkdir(parents=True, mode=0o700)
    port, free = free_port(), free_port()
    public = key_at(cluster / "ssh" / "id_ed25519")
    host_key = key_at(tmp_path / "host_key")
    (tmp_path / "keys").write_text(public, encoding="utf-8")
    (cluster / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key.split()[:2])}\n", encoding="utf-8")
    (cluster / "cluster.yml").write_text(
        f"schema: 1\ncluster: {{name: hpc, user: root, port: {port}}}\nnodes:\n"
        "  - {names: n1, addresses: 127.0.0.1, roles: [controller, compute]}\n",
        encoding="utf-8",
    )
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host_key\nAuthorizedKeysFile {tmp_path}/keys\n"
        f"PidFile {tmp_path}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nAcceptEnv *\nX11Forwarding yes\n"
        "PermitTunnel yes\nAllowAgentForwarding yes\n",
        encoding="utf-8",
    )
    # ssh finds the home in the user database: a test can give it no other ~/.ssh/config
    config = tmp_path / "config"
    config.write_text(HOSTILE.format(directory=directory, free=free, dynamic=free_port()), encoding="utf-8")
    real = shutil.which("ssh")
    path = write_program(tmp_path / "bin" / "ssh", f'exec {real} -F {config} "$@"').parent
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    monkeypatch.setenv("SITE_SECRET", "secret")
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    Path("/run/sshd").mkdir(exist_ok=True)
    assert SSHD is not None
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        wait_until("sshd listens", lambda: _listens(port))
        yield Host(directory, ClusterDir(cluster), port, free)
    finally:
        shutil.rmtree(directory)
        for process in (server, agent):
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_the_configuration_would_give_all_of_it_away(host: Host) -> None:
    """The trap works: without our options ssh obeys it."""
    words = [
        "-o",
        f"UserKnownHostsFile={host.cluster.known_hosts}",
        "-i",
        str(host.cluster.ssh_key),
        "-p",
        str(host.port),
    ]
    done = subprocess.run(
        ["ssh", "-o", "RemoteCommand=none", *words, "root@127.0.0.1", ASK], capture_output=True, text=True
    )

    assert "site=secret token=secret" in done.stdout
    assert "agent=/" in done.stdout
    assert "local-command" in host.leaks()


def test_a_command_on_a_node_takes_nothing_along(host: Host) -> None:
    answer = ask(host.cluster, host.cluster.cluster(), host.cluster.cluster().nodes[0], ["sh", "-c", ASK])

    assert (answer.output.strip(), answer.errors) == (NOTHING, "")
    assert host.leaks() == []


def test_a_followed_journal_takes_nothing_along(host: Host) -> None:
    node = host.cluster.cluster().nodes[0]
    with command_on(host.cluster, host.cluster.cluster(), node, ["sh", "-c", ASK]) as command:
        assert subprocess.run(command.argv, capture_output=True, text=True).stdout.strip() == NOTHING
    assert host.leaks() == []


def test_a_question_to_many_nodes_takes_nothing_along(host: Host) -> None:
    node = host.cluster.cluster().nodes[0]
    way = Way(host.cluster, host.cluster.cluster(), "root", USUAL_SSH, host.directory)
    hidden = without_variables(withheld([way.target(node)], os.environ))
    command = [*hidden, *way.command(node, ["sh", "-c", f"{ASK}; cat"], as_root=True)]
    calls = [fan_out.Call(f"n{number}", command, b"%d" % number, 30) for number in range(20)]

    answers = fan_out.ask_all(calls, width=4)

    assert {name: answer.output.decode().split("\n") for name, answer in answers.items()} == {
        f"n{number}": [NOTHING, str(number)] for number in range(20)
    }
    assert host.leaks() == []


def test_a_node_that_hangs_or_sends_without_end_costs_the_others_nothing(host: Host) -> None:
    node = host.cluster.cluster().nodes[0]
    way = Way(host.cluster, host.cluster.cluster(), "root", USUAL_SSH, host.directory)
    words = {"well": "echo well", "hangs": "sleep 600", "endless": "cat /dev/zero", "fails": "echo why >&2; exit 7"}
    calls = [
        fan_out.Call(name, way.command(node, ["sh", "-c", word], as_root=True), b"", 8, most=1 << 20)
        for name, word in words.items()
    ]
    calls.append(fan_out.Call("away", ["ssh", "-o", "ConnectTimeout=1", "-p", "1", "127.0.0.1", "true"], b"", 8))

    began = time.monotonic()
    answers = fan_out.ask_all(calls, width=2)

    assert time.monotonic() - began < 60
    assert (answers["well"].status, answers["well"].output) == (0, b"well\n")
    assert (answers["hangs"].status, answers["endless"].status) == (None, None)
    assert (answers["hangs"].late, answers["endless"].late) == (True, False)
    assert (answers["fails"].status, answers["fails"].errors.splitlines()[-1]) == (7, "why")
    assert answers["away"].status == 255


def test_the_logins_of_ssh_setup_take_nothing_along(host: Host) -> None:
    client = Client(host.cluster.known_hosts)
    target = Target("n1", "127.0.0.1", "root", host.port)

    answer = client.login(target, key_login(host.cluster.ssh_key), Script(ASK))

    assert answer.output.strip() == NOTHING
    assert host.leaks() == []


@pytest.mark.parametrize("ssh", [USUAL_SSH, IMPATIENT_SSH])
def test_ansibles_connections_take_nothing_along(host: Host, ssh: dict[str, str]) -> None:
    arguments = [
        *shlex.split(ssh_arguments(host.cluster.known_hosts, ssh)),
        "-o",
        f"ControlPath={host.directory}/kept-%C",
    ]
    target = Target("n1", "127.0.0.1", "root", host.port)
    environment = {name: value for name, value in os.environ.items() if name not in withheld([target], os.environ)}

    done = subprocess.run(["ssh", *arguments, *key_login(host.cluster.ssh_key), *target.arguments(), ASK],
                          capture_output=True, text=True, env=environment)  # fmt: skip
    subprocess.run(
        ["ssh", "-O", "exit", "-o", f"ControlPath={host.directory}/kept-%C", *target.arguments()], capture_output=True
    )

    assert done.stdout.strip() == NOTHING, done.stderr
    assert host.leaks() == []


def test_ansible_by_hand_takes_nothing_along_either(host: Host) -> None:
    """Variables of SendEnv are the person's own then: no option of the inventory can take them back."""
    inventory = build_inventory(parse_spec(host.cluster.spec.read_text(encoding="utf-8"), "cluster.yml"))
    values = inventory["all"]
    assert isinstance(values, dict)
    text = str(values["vars"]["ansible_ssh_common_args"])
    arguments = shlex.split(text.replace("{{ inventory_dir }}/..", str(host.cluster.path)))
    target = Target("n1", "127.0.0.1", "root", host.port)

    words = ["-o", "ControlPath=none", *arguments, *key_login(host.cluster.ssh_key), *target.arguments()]
    done = subprocess.run(["ssh", *words, ASK], capture_output=True, text=True)

    assert done.stdout.startswith("agent= display= ")
    assert host.leaks() == []


def test_a_jump_host_gets_nothing_either(host: Host) -> None:
    option = inventory_option(f"root@127.0.0.1:{host.port}", str(host.cluster.ssh_key), str(host.cluster.known_hosts))
    target = Target("n1", "127.0.0.1", "root", host.port)
    arguments = shlex.split(ssh_arguments(host.cluster.known_hosts, IMPATIENT_SSH))
    environment = {name: value for name, value in os.environ.items() if name not in withheld([target], os.environ)}

    words = [*arguments, *shlex.split(option), *key_login(host.cluster.ssh_key), *target.arguments()]
    done = subprocess.run(["ssh", *words, ASK], capture_output=True, text=True, env=environment)

    assert done.stdout.strip() == NOTHING, done.stderr
    assert host.leaks() == []

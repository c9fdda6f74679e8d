from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import FrameType

import pytest

from deepopsctl.cluster.ssh_login import Target
from deepopsctl.ssh import client
from deepopsctl.ssh.client import Client, Failure, last_words, read_answer, read_route

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key for 192.0.2.1 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("errors", "failure"),
    [
        (CHANGED, Failure.HOST_KEY),
        ("No ED25519 host key is known for gpu01 and you have requested strict checking.\r\n", Failure.HOST_KEY),
        ("ubuntu@192.0.2.1: Permission denied (publickey,password).\r\n", Failure.DENIED),
        ("Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures", Failure.DENIED),
        ("ssh: connect to host 192.0.2.1 port 22: Connection refused", Failure.UNREACHABLE),
        ("ssh: connect to host 192.0.2.1 port 22: No route to host", Failure.UNREACHABLE),
        ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", Failure.UNREACHABLE),
        ("ssh: Could not resolve hostname gpu01: Name or service not known", Failure.UNREACHABLE),
        ("Connection timed out during banner exchange", Failure.UNREACHABLE),
        ("kex_exchange_identification: Connection closed by remote host", Failure.UNREACHABLE),
        ("Bad configuration option: bogus", Failure.COMMAND),
    ],
)
def test_tells_failures_apart(errors: str, failure: Failure) -> None:
    assert read_answer(255, "", errors).failure is failure


def test_knows_which_methods_a_node_still_offers() -> None:
    errors = "ubuntu@192.0.2.1: Permission denied (publickey,keyboard-interactive)."
    assert read_answer(255, "", errors).methods == {"publickey", "keyboard-interactive"}


def test_a_command_that_fails_is_no_failed_login() -> None:
    answer = read_answer(3, "@deepopsctl error no home", "")
    assert (answer.failure, answer.output) == (Failure.COMMAND, "@deepopsctl error no home")


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("ssh: connect to host 192.0.2.1 port 22: No route to host\r\n", "no route to host"),
        ("debug1: x\nsomething\nWarning: Permanently added 'x' to the list of known hosts.\n", "something"),
        ("SELinux says no", "SELinux says no"),
        ("", ""),
    ],
)
def test_quotes_the_last_line_that_says_something(errors: str, words: str) -> None:
    assert last_words(errors) == words


def test_a_route_knows_whether_there_is_a_key_to_try(tmp_path: Path) -> None:
    key = tmp_path / "id_ed25519"
    output = f"user ada\nhostname gpu01\nport 2222\nidentityfile {key}\nidentityfile /nonexistent\n"
    assert not read_route(output, {}).keys
    assert read_route(output, {"SSH_AUTH_SOCK": "/run/agent"}).keys
    key.touch()
    route = read_route(output, {})
    assert (route.user, route.host, route.port, route.keys) == ("ada", "gpu01", 2222, True)


def test_a_host_that_only_shows_its_key_gets_no_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take a login without any key, and is not known yet."""
    started: list[list[str]] = []
    monkeypatch.setattr(client, "withheld", lambda targets, _names: [f"TOKEN_OF_{target.name}" for target in targets])
    monkeypatch.setattr(Client, "_run", lambda _self, arguments, *_: started.append(arguments))

    Client(tmp_path / "known_hosts").probe(Target("gpu01", "192.0.2.1"), ())

    assert started[0][:4] == ["env", "-u", "TOKEN_OF_gpu01", "ssh"]


def test_ctrl_c_ends_the_ssh_that_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    started: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(["sleep", "60"], stdin=pipe, stdout=pipe, stderr=pipe))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        return started[0]

    before = signal.signal(signal.SIGALRM, interrupt)
    monkeypatch.setattr(Client, "_start", start)
    try:
        with pytest.raises(KeyboardInterrupt):
            Client(tmp_path / "known_hosts").probe(Target("gpu01", "192.0.2.1"), ())
        assert started[0].wait(10) == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGALRM, before)
        started[0].kill()

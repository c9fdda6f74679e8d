from __future__ import annotations

import json

import pytest

from deepopsctl.errors import ExitCode
from deepopsctl.ssh import results
from deepopsctl.ssh.client import Answer, Failure
from deepopsctl.ssh.remote_scripts import Report
from deepopsctl.ssh.results import (
    Facts,
    NodeResult,
    SetupResult,
    Status,
    Sudo,
    hints,
    result_object,
    summary_line,
    table_rows,
)

FACTS = Facts("gpu01", "ubuntu", "", frozenset({"gpu02"}))


def report(*lines: str) -> Report:
    return Report.read("".join(f"@deepopsctl {line}\n" for line in lines))


def test_says_what_was_done() -> None:
    result = results.worked(Facts("gpu01", "ubuntu", "host key pinned"), report("changed key", "sudo passwordless"))
    assert result.changed
    assert result.message == "host key pinned; key installed"


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        (["sudo none sudo: sorry, you must have a tty to run sudo"], "Defaults requiretty"),
        (["sudo none ubuntu is not in the sudoers file"], "sudo"),
        (["python missing", "sudo passwordless"], "install python3"),
    ],
)
def test_the_hint_is_that_of_the_fault(lines: list[str], hint: str) -> None:
    assert hint in results.worked(FACTS, report(*lines)).hint


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        (["sudo password"], Status.READY, "-K"),
        (["sudo password", "sudo-password accepted"], Status.READY, "the one given works"),
        (["sudo password", "sudo-password refused"], Status.FAILED, ""),
        (["sudo none not in the sudoers file"], Status.FAILED, ""),
        (["host gpu02.example.com", "sudo passwordless"], Status.READY, "its hostname is gpu02"),
    ],
)
def test_sudo_and_the_hostname_make_the_result(lines: list[str], status: Status, words: str) -> None:
    result = results.worked(FACTS, report(*lines))

    assert result.status is status
    assert words in f"{result.message} {result.hint}"


@pytest.mark.parametrize(
    ("home", "words"), [("777", "writable by others (mode 777) chmod go-w"), ("755", "AuthorizedKeysFile")]
)
def test_a_key_that_sshd_ignores_has_the_reason(home: str, words: str) -> None:
    result = results.unverified(FACTS, Answer(Failure.DENIED, "", "denied"), report(f"home {home}"))

    for part in words.split(" chmod "):
        assert part in f"{result.message} {result.hint}"


def test_a_script_that_stopped_tells_why() -> None:
    answer = Answer(Failure.COMMAND, "@deepopsctl error can't make /home/ubuntu/.ssh\n", "")
    assert results.failed(FACTS, answer).message == "can't make /home/ubuntu/.ssh"


def test_a_node_that_takes_no_passwords_asks_for_a_key() -> None:
    result = results.refused(FACTS, {"publickey"})
    assert result.status is Status.FAILED
    assert "--identity" in result.hint


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([Status.READY, Status.READY], ExitCode.OK),
        ([Status.READY, Status.UNREACHABLE], ExitCode.UNREACHABLE),
        ([Status.REFUSED, Status.UNREACHABLE], ExitCode.FAILED),
        ([Status.HOST_KEY], ExitCode.FAILED),
        ([], ExitCode.OK),
    ],
)
def test_the_exit_code_follows_from_the_nodes(statuses: list[Status], code: ExitCode) -> None:
    result = SetupResult(tuple(NodeResult(f"n{number}", status) for number, status in enumerate(statuses)))
    assert result.exit_code is code


def test_an_unreachable_jump_host_counts_as_well() -> None:
    assert SetupResult((), NodeResult("bastion", Status.UNREACHABLE)).exit_code is ExitCode.UNREACHABLE


RESULT = SetupResult(
    (
        NodeResult("ctl1", Status.READY, changed=True, sudo=Sudo.PASSWORDLESS, message="key installed"),
        NodeResult("gpu01", Status.UNREACHABLE, message="no route to host", hint="is it on?"),
        NodeResult("gpu02", Status.READY, changed=True, sudo=Sudo.PASSWORDLESS, message="key installed"),
        NodeResult("gpu03", Status.UNREACHABLE, message="no route to host", hint="is it on?"),
    )
)


def test_nodes_with_the_same_news_share_a_row_and_a_hint_and_failures_come_last() -> None:
    assert table_rows(RESULT) == [
        ("ctl1,gpu02", "ready", "passwordless", "key installed"),
        ("gpu[01,03]", "unreachable", "-", "no route to host"),
    ]
    assert hints(RESULT) == ["gpu[01,03]: is it on?"]
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

"""The Slurm accounts of people as sacctmgr prints them, and whose job is run."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs.suites.validate_environment import charged

TODAY = "2026-11-25"
OPEN = "def-x||\ndef-x|alice|\ndef-x_cpu|alice|\ndef-x_gpu|alice|\n"
ALICE: dict[str, Any] = {"name": "alice", "uid": 60010, "groups": ["def-x"]}
EXPIRED = {**ALICE, "expires": TODAY}


def accounts(monkeypatch: pytest.MonkeyPatch, output: str, person: dict[str, Any]) -> tuple[str, str]:
    """Of one person, as sacctmgr prints them; it fails without an output."""
    answer = command.Result("sacctmgr", 0 if output else 1, output, "", 0.0)
    monkeypatch.setattr(f"{charged.__name__}.slurm.ask", lambda *_arguments: answer)
    check = charged.accounts("hpc", [person], TODAY)
    return check["status"], check["message"]


@pytest.mark.parametrize(
    ("output", "person", "message"),
    [
        (OPEN, ALICE, ""),
        (OPEN.replace("def-x_gpu|alice|\n", ""), ALICE, "alice has no account def-x_gpu"),
        (OPEN.replace("alice|", "alice|0"), EXPIRED, ""),
        (OPEN.replace("x|alice|", "x|alice|0"), EXPIRED, "alice has expired and may still charge def-x_cpu"),
    ],
)
def test_everybody_has_the_accounts_and_expired_ones_are_closed(
    monkeypatch: pytest.MonkeyPatch, output: str, person: dict[str, Any], message: str
) -> None:
    assert accounts(monkeypatch, output, person) == ("fail" if message else "pass", message)
    assert accounts(monkeypatch, "", person)[0] == "fail"


@pytest.mark.parametrize(
    ("person", "group", "reason"),
    [
        (EXPIRED, {}, "no one in people.yml may submit jobs today"),
        (ALICE, {"end": TODAY}, "no one in people.yml may submit jobs today"),
        (ALICE, {"start": "2026-11-26"}, "no one in people.yml may submit jobs today"),
        # one who was added since the last deploy
        (ALICE, {}, "there is no user alice on this node"),
    ],
)
def test_nobody_is_made_to_submit_who_may_not(person: dict[str, Any], group: dict[str, str], reason: str) -> None:
    people = {"people": [person], "groups": [{"name": "def-x", "gid": 60001, **group}]}

    made = charged.job("hpc", people, TODAY, 1.0, "")

    assert (made["status"], made["message"]) == ("skip", reason)


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("60010\n60010 60001\n", "pass"),
        ("Welcome to gpu01\n60010\n60010 60001\n", "pass"),
        ("60011\n60010 60001\n", "fail"),
        ("60010\n60010\n", "fail"),
        ("", "fail"),
    ],
)
def test_the_ids_in_the_job_are_those_of_the_controller(output: str, status: str) -> None:
    assert charged._evaluate("hpc", "alice", 60010, [60010, 60001], output)["status"] == status

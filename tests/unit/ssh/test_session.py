from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from deepopsctl.cluster.ssh_login import Target
from deepopsctl.ssh import results
from deepopsctl.ssh.client import Answer, Failure, Route
from deepopsctl.ssh.key_pair import KeyPair
from deepopsctl.ssh.results import Facts, NodeResult, Status
from deepopsctl.ssh.session import Password, Round, Session, Tools


@dataclass
class Machine:
    """A session with a machine: `opens` says what lets us in."""

    name: str
    opens: str
    accepted: bool | None = None
    passwords: list[str] = field(default_factory=list)

    @property
    def facts(self) -> Facts:
        return Facts(self.name, "ubuntu", "")

    def with_keys(self) -> NodeResult | None:
        if self.opens == "nothing at all":
            return results.unreachable(self.facts, "no route to host")
        return NodeResult(self.name, Status.READY) if self.opens == "a key" else None

    def with_password(self, password: str) -> NodeResult:
        self.passwords.append(password)
        if self.opens == "broken":
            return results.unreachable(self.facts, "connection lost")
        self.accepted = password == self.opens
        return NodeResult(self.name, Status.READY) if self.accepted else results.refused(self.facts, ())


def run(machines: Iterable[Machine], password: Password) -> dict[str, Status]:
    results = Round(password, lambda result: None, lambda: None).try_all(machines)
    return {name: result.status for name, result in results.items()}


def machines(count: int, opens: str) -> list[Machine]:
    return [Machine(f"gpu{number:02d}", opens) for number in range(count)]


def test_the_password_is_asked_for_once_for_all_nodes() -> None:
    asked: list[str] = []
    password = Password(ask=lambda: asked.append("asked") or "right")  # type: ignore[func-returns-value]  # it is None on purpose
    assert set(run(machines(40, "right"), password).values()) == {Status.READY}
    assert asked == ["asked"]


def test_a_wrong_password_is_tried_on_one_node_only() -> None:
    nodes = machines(40, "right")
    statuses = list(run(nodes, Password("wrong")).values())
    assert sum(len(node.passwords) for node in nodes) == 1
    assert statuses.count(Status.REFUSED) == 1
    assert statuses.count(Status.NOT_TRIED) == 39


def test_a_password_refused_in_one_round_is_not_tried_in_the_next() -> None:
    password = Password("wrong")
    run(machines(1, "right"), password)
    later = machines(3, "right")
    assert set(run(later, password).values()) == {Status.NOT_TRIED}
    assert not any(node.passwords for node in later)


def test_a_node_with_another_password_does_not_stop_the_others() -> None:
    password = Password("right", accepted=True)
    statuses = run([Machine("odd", "other"), *machines(5, "right")], password)
    assert statuses.pop("odd") is Status.REFUSED
    assert set(statuses.values()) == {Status.READY}


def test_a_node_that_dies_while_it_is_tried_shows_nothing() -> None:
    statuses = run([Machine("dying", "broken"), *machines(3, "right")], Password("right"))
    assert statuses.pop("dying") is Status.UNREACHABLE
    assert set(statuses.values()) == {Status.READY}


def test_without_a_password_each_node_says_so() -> None:
    results = Round(Password(), lambda result: None, lambda: None).try_all(machines(2, "right"))
    assert all("--password-file" in result.hint for result in results.values())


def test_an_interruption_stops_the_processes_and_goes_on_up() -> None:
    stopped: list[bool] = []

    def interrupt(result: NodeResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Round(Password(), interrupt, lambda: stopped.append(True)).try_all(machines(3, "a key"))
    assert stopped == [True]


class Node:
    """Stands in for the client and the host keys: each login gives this output."""

    def __init__(self, output: str) -> None:
        self.output = output

    def route(self, _target: object) -> Route:
        return Route("ubuntu", "10.0.0.1", 22)

    def secure(self, *_: object) -> bool:
        return False

    def login(self, *_: object) -> Answer:
        return Answer(Failure.NONE, self.output)


@pytest.mark.parametrize(
    ("output", "status", "message"),
    [
        # a forced command, or a login shell that ignores what it is given
        ("", Status.FAILED, "does not run what it is given"),
        ("Welcome\n", Status.FAILED, "does not run what it is given"),
        ("@deepopsctl host gpu01\n@deepopsctl sudo something new\n", Status.READY, ""),
    ],
)
def test_a_node_is_ready_only_if_the_script_has_run(output: str, status: Status, message: str) -> None:
    node = cast("Any", Node(output))
    tools = Tools(node, node, node, KeyPair(Path("/key"), "ssh-ed25519 AAAA"), frozenset({"gpu01"}))

    result = Session(Target("gpu01", "10.0.0.1"), tools, ("ssh-ed25519 AAAA",)).with_keys()

    assert result is not None
    assert result.status is status
    assert message in result.message

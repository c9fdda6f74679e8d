"""Ids and groups of people on one node, as its name service answers; this machine's accounts stand for people."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs.suites.validate_environment import identities

DAEMON = {"name": "daemon", "uid": 1, "groups": ["daemon"]}
GROUPS = [{"name": "daemon", "gid": 1}]


def checks(people: list[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    made = identities.verify_ids("n1", {"people": people, "groups": groups})
    return {check["name"]: (check["status"], check["message"]) for check in made}


@pytest.mark.parametrize(
    ("people", "message"),
    [
        ([DAEMON], ""),
        ([{**DAEMON, "uid": 60010}], "daemon has the id 1, people.yml says 60010"),
        (
            [{**DAEMON, "name": f"x{number}"} for number in range(7)],
            "; ".join([*(f"there is no user x{number}" for number in range(5)), "and 2 more"]),
        ),
    ],
)
def test_another_id_and_a_missing_user_fail(people: list[dict[str, Any]], message: str) -> None:
    assert checks(people, GROUPS)["environment-ids"] == ("fail" if message else "pass", message)


@pytest.mark.parametrize(
    ("people", "groups", "message"),
    [
        ([DAEMON], GROUPS, ""),
        ([], [{"name": "daemon", "gid": 60001}], "the group daemon has the id 1, people.yml says 60001"),
        ([], [{"name": "no-such-group", "gid": 60001}], "there is no group no-such-group"),
        ([{**DAEMON, "groups": ["mail"]}], [{"name": "mail", "gid": 8}], "daemon is not in mail"),
    ],
)
def test_wrong_groups_fail(people: list[dict[str, Any]], groups: list[dict[str, Any]], message: str) -> None:
    assert checks(people, groups)["environment-groups"] == ("fail" if message else "pass", message)

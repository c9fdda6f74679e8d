"""The filters of the component environment, as playbooks call them."""

from __future__ import annotations

from typing import Any

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.storage.writer import variable
from tests.support import node_modules as nodeside

filters = nodeside.plugin("filter", "environment")
SPEC = """\
schema: 1
nodes: [{names: ctl1, roles: [controller]}, {names: n1, roles: [compute]}]
storage: [{name: home, type: nfs, source: "ctl1:/srv/home", path: /home}]
"""
PEOPLE: dict[str, Any] = {
    "groups": [{"name": "def-x", "gid": 60001}],
    "people": [
        {"name": "alice", "uid": 60010, "groups": ["def-x"], "expires": "2020-01-01"},
        {"name": "bob", "uid": 60011, "groups": ["def-x"]},
    ],
}


def test_homes_are_where_the_inventory_says_that_the_server_has_them() -> None:
    entries = variable(parse_spec(SPEC, "cluster.yml").storage)

    assert filters.environment_homes(entries, "ctl1", "/home", ["ctl1"]) == {"directory": "/srv/home", "mounted": ""}


def test_somebody_whose_day_has_passed_has_expired() -> None:
    limits = {user["name"]: user["settings"] for user in filters.environment_policy({}, PEOPLE)["users"]}

    assert filters.environment_expired(PEOPLE) == ["alice"]
    assert filters.environment_policy({"qos": []}, {}) == {"qos": []}
    assert filters.environment_expired({}) == []
    assert limits == {"alice": {"MaxSubmit": "0", "MaxJobs": "0"}, "bob": {}}


def test_conflicts_of_all_nodes_are_one_text_that_names_the_first_few() -> None:
    hostvars = {f"n{number}": {"deepops_people_conflicts": {"conflicts": ["x"]}} for number in range(7)}

    assert filters.environment_conflicts([*hostvars, "silent"], hostvars | {"silent": {}}) == (
        "n0: x; n1: x; n2: x; n3: x; n4: x; and 2 more"
    )
    assert filters.environment_conflicts(["silent"], {"silent": {}}) == ""


def test_members_are_counted_by_group_and_people_by_name() -> None:
    spaces = [
        {"path": "/project", "by": "group", "counted": True},
        {"path": "/scratch", "by": "user", "counted": True},
        {"path": "/fast", "by": "user", "counted": False},
    ]

    assert filters.environment_counted(spaces, PEOPLE["groups"], PEOPLE["people"]) == {
        "schema": 1,
        "spaces": [
            {"path": "/project", "groups": {"def-x": 60001}},
            {"path": "/scratch", "users": ["alice", "bob"]},
        ],
    }

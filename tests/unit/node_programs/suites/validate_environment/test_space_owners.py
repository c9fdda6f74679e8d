"""Directories of people and groups: each damage is reported, for every owner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.validate_environment import space_owners

UID, GID = os.getuid(), os.getgid()


def people(*names: str, uid: int = UID) -> dict[str, list[dict[str, Any]]]:
    return {
        "groups": [{"name": "def-curie", "gid": GID}],
        "people": [{"name": name, "uid": uid, "groups": ["def-curie"]} for name in names],
    }


@pytest.fixture
def spaces(tmp_path: Path) -> list[dict[str, str]]:
    made = [("scratch", "user", ("ada", "bob")), ("project", "group", ("def-curie",))]
    for space, _by, names in made:
        for name in names:
            (tmp_path / space / name).mkdir(parents=True, mode=0o700 if space == "scratch" else 0o2770)
    return [{"name": space, "by": by, "path": str(tmp_path / space)} for space, by, _names in made]


def message(spaces: list[dict[str, str]], declared: dict[str, list[dict[str, Any]]]) -> str:
    (check,) = space_owners.verify_owners("n1", declared, spaces)
    assert (check["status"] == "fail") == bool(check["message"])
    return str(check["message"])


def test_directories_as_they_should_be_pass(spaces: list[dict[str, str]]) -> None:
    assert message(spaces, people("ada", "bob")) == ""


def test_a_directory_of_the_second_person_that_is_gone_is_named(spaces: list[dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "scratch" / "bob").rmdir()

    assert message(spaces, people("ada", "bob")) == f"{tmp_path}/scratch/bob: No such file or directory"


def test_another_owner_a_link_and_a_directory_for_all_are_named(spaces: list[dict[str, str]], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "bob").rmdir()
    (scratch / "bob").symlink_to("/etc")
    (tmp_path / "project" / "def-curie").chmod(0o2777)

    text = message(spaces, people("ada", "bob"))

    assert f"{scratch}/bob is not a directory" in text
    assert f"{tmp_path}/project/def-curie may be written by everybody" in text
    assert f"ada belongs to {UID}, not to {UID + 1}" in message(spaces, people("ada", uid=UID + 1))


def test_of_many_people_each_node_compares_others() -> None:
    many = [{"name": f"u{number}"} for number in range(1000)]
    first, second = space_owners.sample("n1", many), space_owners.sample("n2", many)

    assert len(first) == len(second) == space_owners.MOST
    assert first == space_owners.sample("n1", many)
    assert {each["name"] for each in first} != {each["name"] for each in second}

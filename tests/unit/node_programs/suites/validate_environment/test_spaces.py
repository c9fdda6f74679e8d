"""What a person finds of spaces on one node: the script in a shell of this machine, and what is made of its answers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment import spaces

ALICE = {"name": "alice", "uid": 60010, "groups": ["def-curie"]}
SCRATCH = {"name": "scratch", "path": "/scratch", "by": "user", "variable": "SCRATCH", "link": "scratch"}
PROJECT = {"name": "project", "path": "/project", "by": "group", "variable": "PROJECT", "link": "projects"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for path in (tmp_path / "s", tmp_path / "p", home / "projects"):
        path.mkdir(parents=True)
    (home / "scratch").symlink_to(tmp_path / "s")
    (home / "projects" / "def-curie").symlink_to(tmp_path / "p")
    return home


def tried(home: Path, **changed: str) -> tuple[str, str]:
    variables = {"SCRATCH": str(home.parent / "s"), "PROJECT": str(home.parent / "p"), **changed}
    argv = ["bash", "-c", spaces.script(ALICE, [SCRATCH, PROJECT])]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **variables}
    output = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    made = spaces.evaluate("n1", ALICE, [SCRATCH, PROJECT], "motd\n" + output)
    return made["status"], made["message"]


def test_a_person_who_has_everything_passes(home: Path) -> None:
    assert tried(home) == ("pass", "")
    assert list((home.parent / "s").iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SCRATCH": "/nowhere/alice"}, "$SCRATCH: /nowhere/alice can't be written to"),
        ({"SCRATCH": "/tmp"}, "$SCRATCH: ~/scratch does not lead there"),
        ({"PROJECT": ""}, "$PROJECT: not set"),
    ],
)
def test_a_space_that_is_not_there_or_that_nothing_leads_to_is_named(
    home: Path, changed: dict[str, str], message: str
) -> None:
    status, text = tried(home, **changed)

    assert status == "fail"
    assert text.startswith(f"as alice: {message}")
    # a shell that prints nothing
    silent = spaces.evaluate("n1", ALICE, [SCRATCH], "")["message"]
    assert silent == "as alice: $SCRATCH: not set: /scratch/alice is missing, or belongs to another user"


def test_people_whose_account_has_expired_are_not_asked() -> None:
    assert spaces.first_active([{**ALICE, "expires": "2020-01-01"}, {**ALICE, "name": "bob"}])["name"] == "bob"

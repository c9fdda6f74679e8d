"""Subordinate ids: where each user's begin, and that no two users share any."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepopsctl.environment.subordinate_ids import EACH, USERS, block
from deepopsctl.text.problems import RefusedError
from tests.support.paths import ROOT

FIRST = 655_360_000
ALICE: dict[str, Any] = {"name": "alice", "uid": 2001}
BOB: dict[str, Any] = {"name": "bob", "uid": 2001 + USERS}


def of(*people: dict[str, Any], last: int = 0, login: str = "root", groups: tuple[int, ...] = ()) -> dict[str, int]:
    """Where each user's ids begin."""
    declared = {"people": list(people), "groups": [{"gid": gid} for gid in groups]}
    directory = {"first_id": 20_000, "last_id": last} if last else {}
    rows = (line.split(":") for line in block(declared, directory, FIRST, login).splitlines())
    ranges = {name: (int(start), int(count)) for name, start, count in rows}
    assert {count for _, count in ranges.values()} <= {EACH}
    return {name: start for name, (start, _) in ranges.items()}


def test_a_users_place_follows_from_the_users_id_and_stays_when_others_come() -> None:
    assert of(ALICE)["alice"] == FIRST + 2001 * EACH == of({"name": "carol", "uid": 2002}, ALICE, BOB)["alice"]


def test_no_two_users_share_an_id() -> None:
    starts = sorted(of(ALICE, BOB, last=29_999, login="ubuntu").values())

    # bob's id is one of the directory's, too
    assert len(starts) == 10_000 + len(("alice", "ubuntu"))
    assert all(after - before >= EACH for before, after in pairwise(starts))


def test_users_of_the_directory_have_lines_by_number_where_it_says_its_last_id() -> None:
    assert of(last=20_001) == {"20000": FIRST, "20001": FIRST + EACH}
    assert of() == {}


def test_who_deploys_has_ids_but_root_and_people_have_no_second_line() -> None:
    assert of(login="ubuntu") == {"ubuntu": FIRST + USERS * EACH}
    assert list(of(ALICE, login="alice")) == ["alice"]


@pytest.mark.parametrize("people", [(({"name": "eve", "uid": FIRST + 5}),), ()])
def test_an_id_of_a_user_or_group_is_nobodys_subordinate_id(people: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(RefusedError, match="is among the subordinate ids"):
        of(*people, groups=() if people else (FIRST + 7,))


def test_a_first_id_without_room_is_refused() -> None:
    with pytest.raises(RefusedError, match="is not between 65536 and"):
        block({}, {}, 2_000_000_000, "")


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("mallory:786500000:10", False),
        ("mallory:100000:65536", True),
        ("alice:100000:65536", True),
        ("# mallory:786500000:10", True),
    ],
)
def test_a_node_refuses_lines_that_share_an_id(tmp_path: Path, line: str, accepted: bool) -> None:
    variables = yaml.safe_load((ROOT / "roles/containers/vars/main.yml").read_text(encoding="utf-8"))
    (tmp_path / "subuid").write_text(f"{block({'people': [ALICE]}, {}, FIRST, '')}{line}\n", encoding="utf-8")

    argv = [sys.executable, "-c", variables["__containers_overlaps"], str(tmp_path / "subuid")]
    done = subprocess.run(argv, capture_output=True, text=True)

    assert (done.returncode == 0) is accepted, done.stderr
    assert accepted or "both have the subordinate id 786500000" in done.stderr

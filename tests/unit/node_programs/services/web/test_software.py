"""Space and software on the pages: what the commands of login nodes say, as text."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.services.web import kept, software, views
from deepopsctl.node_programs.services.web.offer import RefusedError
from tests.support.paths import ROOT
from tests.unit.node_programs.services.web.test_pages import EVIL, page

NONE = {"used": None, "soft": None, "hard": None}
SPACE = {"used": 96 << 30, "soft": 100 << 30, "hard": 110 << 30}
HOME = {"name": "home", "path": "/home", "kind": "user", "who": "alice", "source": "nfs", "problem": "",
        "usage": {"space": SPACE, "files": NONE, "grace": 1796000000}}  # fmt: skip
LOST = {**HOME, "path": "/project", "problem": f"no answer in 10 s {EVIL}"}


def says(output: str, status: int = 0) -> tuple[software.Ask, list[list[str]]]:
    asked: list[list[str]] = []

    def ask(argv: list[str], _limit: float) -> Result:
        asked.append(argv)
        return Result(argv[0], status, output, "", 0.0)

    return ask, asked


def test_a_limit_that_is_nearly_used_up_is_red_and_what_does_not_answer_is_said() -> None:
    # a file system without an answer makes its status 1
    ask, _ = says(json.dumps({"rows": [HOME, LOST]}), 1)

    text = page("space.html", **views.space(software.space(ask)))

    assert 'class="bar poor"' in text
    assert "96 %: 96 GiB of 100 GiB" in text
    assert "Nothing more can be written from" in text
    assert "no answer in 10 s" in text
    assert "<img" not in text


def test_without_limits_it_says_so() -> None:
    ask, _ = says("", 3)

    assert "No file systems" in views.space(software.space(ask))["trouble"]


def test_wheels_are_those_of_the_command_and_a_name_is_no_option() -> None:
    ask, asked = says(f"torch 2.9.1 cp313 x86_64\n{EVIL.replace(' ', '')} 1 2 3\nof two\n")

    answer = software.wheels(ask, "--all")

    assert asked[0][3] == "--name=*--all*", shlex.join(asked[0])
    assert answer["wheels"][0] == {"name": "torch", "version": "2.9.1", "python": "cp313", "arch": "x86_64"}
    text = page("software.html", environments=[], examples=[], wanted=EVIL, **answer)
    assert "<img" not in text


@pytest.mark.parametrize("wanted", ["*", "a b", "x;y", "a" * 61, "torch\n"])
def test_a_name_of_a_package_is_one(wanted: str) -> None:
    ask, asked = says("")

    with pytest.raises(RefusedError):
        software.wheels(ask, wanted)
    assert not asked


def test_examples_are_those_of_deploy() -> None:
    made = software.examples(str(ROOT / "examples"))

    by_name = {each["name"]: each for each in made}
    assert by_name["array.sh"]["about"].startswith("The same job with many parameters")
    assert by_name["array.sh"]["text"] == Path(ROOT, "examples/array.sh").read_text(encoding="utf-8")
    assert "training/train_ddp.py" in by_name
    assert all(each["about"] for each in made), [each["name"] for each in made if not each["about"]]
    assert software.examples("/nowhere") == []


def test_answers_are_kept_for_some_minutes_and_not_without_end() -> None:
    now = [0.0]
    answers: Any = kept.Kept(lambda: now[0])
    for number in range(kept.MOST + 1):
        answers.put(number, {"of": number})

    assert answers.get(0) is None
    assert answers.get(1) == {"of": 1}
    now[0] = kept.GOOD_S
    assert answers.get(1) is None

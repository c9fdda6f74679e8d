"""A reader with docs/llms.txt alone: its commands build a lab, add a node, and explain a deploy that failed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import NOT_POSSIBLE, PREFIX, SETTINGS, command, lab_down
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(bool(NOT_POSSIBLE), reason=NOT_POSSIBLE)

NAME = f"{PREFIX}-llms"
TEXT = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")


class Reader:
    """Types the commands of llms.txt, with what their answers have in place of what is in capitals."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.known = {"lab1": NAME, "hpc": str(directory / "hpc"), "lab1.yml": str(directory / "lab1.yml")}

    def type(self, heading: str, *, codes: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """Each command of the block below a sentence; what those with --json answer."""
        block = re.search(rf"^{re.escape(heading)}.*\n\n((?:    .*\n)+)", TEXT, re.MULTILINE)
        assert block is not None, heading
        answers = []
        for line in block[1].splitlines():
            program, *words = shlex.split(line, comments=True)
            assert program == "deepopsctl"
            done = command(*[self.filled(word) for word in words], seconds=1200)
            assert done.returncode in codes, f"{line}: {done.stdout}{done.stderr}"
            if "--json" in words:
                answers.append(json.loads(done.stdout))
                self.learn(answers[-1])
        return answers

    def filled(self, word: str) -> str:
        """A word of a command as this reader types it."""
        name, equals, address = word.partition("=")
        return "".join((self.known.get(name, name), equals, self.known.get(address, address)))

    def learn(self, answer: dict[str, Any]) -> None:
        """What a later command needs."""
        self.known["PASSWORD-FILE"] = answer.get("password_file", self.known.get("PASSWORD-FILE", ""))
        for node in answer.get("nodes", []) if answer["command"] == "lab up" else []:
            if node["name"] in answer["added"]:
                self.known |= {"NAME": node["name"], "ADDRESS": node["address"]}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    lab_down(NAME)
    made = Reader(tmp_path_factory.mktemp("llms"))
    yield made
    made.type("The end of a lab")


def test_it_builds_a_lab_and_adds_a_node(reader: Reader) -> None:
    *_, deployed = reader.type("Without machines")
    assert deployed["ok"]

    _, added = reader.type("Add a node")
    assert added["ok"]


def test_it_explains_a_deploy_that_failed(reader: Reader) -> None:
    settings = reader.directory / "hpc" / SETTINGS
    with settings.open("a", encoding="utf-8") as stream:
        stream.write("slurm_config: {TaskProlog: /opt/site/missing}\n")
    assert command("-C", str(reader.directory / "hpc"), "deploy", seconds=1200).returncode == 1

    shown, _, _ = reader.type("Explain a deploy that failed", codes=(0, 1))

    assert not shown["ok"]
    messages = [each["message"] for each in shown["summary"]["failures"]]
    assert any("/opt/site/missing" in message for message in messages), messages

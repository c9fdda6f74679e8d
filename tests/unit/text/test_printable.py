"""Text of users and nodes on its way to a terminal."""

from __future__ import annotations

import json

import click
import pytest

from deepopsctl.cli.output import emit_json, info
from deepopsctl.model.json_objects import SCHEMA, FilesObject
from deepopsctl.run.events import HostResult, Notice, parse
from deepopsctl.text.printable import coloured, printable

HOSTILE = "a\x1b[2J\x1b]0;t\x07\rb\x9b31m\u202ec\udcff"


def test_nothing_that_a_terminal_obeys_is_passed_on() -> None:
    assert printable(HOSTILE) == "a?[2J?]0;t??b?31m?c?"
    assert printable("two\nlines\twith ü") == "two\nlines\twith ü"


def test_nothing_in_a_nodes_answer_is_passed_on_either() -> None:
    answer = {"res": {"msg": HOSTILE, "failed": True, "deepops": {"name\x1b": [HOSTILE, 7, None]}}}
    event = parse({"event": "runner_on_failed", "event_data": {"host": "n1", "task": "t", **answer}})

    notice = parse({"event": "warning", "stdout": HOSTILE})
    assert isinstance(notice, Notice)
    assert notice.text == "a?[2J?]0;t?b?31m?c?"

    assert isinstance(event, HostResult)
    assert event.message == printable(HOSTILE)
    assert event.data == ({"name?": [printable(HOSTILE), 7, None]},)


@pytest.mark.parametrize(
    "styled",
    [click.style("x", fg=colour, bold=True) for colour in ("red", "yellow", "cyan", "green", "bright_black")]
    + [click.style("x", dim=True)],
)
def test_our_own_colours_are_kept(styled: str) -> None:
    assert coloured(styled + HOSTILE) == styled + printable(HOSTILE)


def test_people_and_programs_are_given_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    info(f"job of {HOSTILE}")
    emit_json(FilesObject(schema=SCHEMA, command="docs users", ok=True, files=[HOSTILE]))

    out, err = capsys.readouterr()
    assert err == f"job of {printable(HOSTILE)}\n"
    assert out.strip().isprintable()
    assert json.loads(out)["files"] == [HOSTILE]

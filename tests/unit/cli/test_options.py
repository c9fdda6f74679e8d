"""Durations."""

from __future__ import annotations

import click
import pytest

from deepopsctl.cli.commands.secrets import rotate
from deepopsctl.cli.options import seconds
from tests.unit.cli.test_reference import commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, expected: float) -> None:
    assert seconds(click.Context(rotate), rotate.params[0], text) == expected


@pytest.mark.parametrize("text", ["", "h", "-1", "1e3", "nan", "1w", "367d", "9" * 30, "\u0663"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a valid duration"):
        seconds(click.Context(rotate), rotate.params[0], text)


# commands that log in to no node, or to nodes that are not in cluster.yml yet (`ssh setup` has -k and -K alone)
_HERE = {
    "init", "inventory", "ssh setup", "ssh config", "docs users", "docs schema", "docs show", "environments list",
    "people add", "people add-group", "people ids", "people import", "packages add", "packages list", "wheels list",
    "runs list", "runs show", "lab up", "lab down", "lab status",
}  # fmt: skip


def test_every_command_that_reaches_nodes_takes_the_connection_options() -> None:
    taken = {
        name: {option for parameter in command.params for option in parameter.opts} for name, command in commands()
    }
    wanted = {"--ask-pass", "--ask-become-pass", "--user"}

    assert {name: wanted - options for name, options in taken.items() if wanted - options and name not in _HERE} == {}
    assert taken.keys() >= _HERE

"""Durations."""

from __future__ import annotations

import click
import pytest

from deepopsctl.cli.commands.secrets import rotate
from deepopsctl.cli.options import seconds


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

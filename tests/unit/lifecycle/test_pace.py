"""How many nodes at a time, how many may fail, and the hours in which nodes are taken out of service."""

from __future__ import annotations

from datetime import datetime

import pytest

from deepopsctl.errors import DeepOpsError
from deepopsctl.lifecycle.pace import Pace, allowed_failures, batch_size, parse_window


def at(text: str) -> datetime:
    """A day of a week that begins on Monday, 7 December 2026: `Sat 02:00`."""
    day, hours = text.split()
    number = 7 + ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun").index(day)
    return datetime.fromisoformat(f"2026-12-{number:02} {hours}")


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        ("Sat 02:00-06:00", ["Sat 02:00", "Sat 05:59"], ["Sat 01:59", "Sat 06:00", "Sun 03:00", "Fri 03:00"]),
        ("01:00-04:00", ["Mon 01:00", "Sun 03:59"], ["Mon 00:59", "Sun 04:00"]),
        # the day on which it begins
        ("Fri 22:00-05:00", ["Fri 22:00", "Sat 04:59"], ["Fri 04:00", "Sat 05:00", "Sat 23:00"]),
        ("Sun 22:00-05:00", ["Mon 04:59", "Sun 23:00"], ["Tue 04:00"]),
        ("Sat,Sun 08:00-09:00", ["Sat 08:30", "Sun 08:30"], ["Mon 08:30"]),
        ("mon-fri 22:00-23:00", ["Mon 22:30", "Fri 22:30"], ["Sat 22:30"]),
        ("Sat-Mon 22:00-23:00", ["Sat 22:30", "Sun 22:30", "Mon 22:30"], ["Tue 22:30", "Fri 22:30"]),
    ],
)
def test_a_window_is_open_in_its_hours_on_its_days(window: str, inside: list[str], outside: list[str]) -> None:
    parsed = parse_window(window)

    assert [time for time in inside if not parsed.is_open(at(time))] == []
    assert [time for time in outside if parsed.is_open(at(time))] == []


@pytest.mark.parametrize(
    "text",
    ["", "Sat", "Sat 2:00-6:00", "Sat 02:00-24:00", "Sat 02:00", "Sam 02:00-06:00", "Mon-Wed-Fri 02:00-06:00",
     "Sat, 02:00-06:00", "Sat 02:00-02:00", "Sat 02:00 - 06:00", "Sat ٠٢:٠٠-٠٦:٠٠", "Sat Sun 02:00-06:00",
     "-Sat 02:00-06:00"],
)  # fmt: skip
def test_what_is_no_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DeepOpsError, match="--window") as refused:
        parse_window(text)

    assert "Sat 02:00-06:00" in refused.value.hint


@pytest.mark.parametrize(
    ("window", "now", "opens"),
    [
        ("Sat 02:00-06:00", "Mon 12:00", at("Sat 02:00")),
        ("Sat 02:00-06:00", "Sat 01:00", at("Sat 02:00")),
        ("Mon-Fri 22:00-05:00", "Tue 06:00", at("Tue 22:00")),
        # on the day on which it has closed, a week later
        ("Sat 02:00-06:00", "Sat 06:00", datetime(2026, 12, 19, 2)),
    ],
)
def test_it_says_when_a_window_opens_again(window: str, now: str, opens: datetime) -> None:
    assert parse_window(window).next_opening(at(now)) == opens


def test_what_is_left_is_named_with_the_command_and_the_time() -> None:
    names, window = ["cn1", "cn2"], parse_window("Sat 02:00-06:00")

    left = Pace(window=window).left_sentence(names, "upgrade os", at("Mon 12:00"))

    assert left == (
        "cn[1-2] is left: `deepopsctl upgrade os` continues when the window Sat 02:00-06:00 opens, Sat 2026-12-12 02:00"
    )


def test_without_a_window_any_time_is_good() -> None:
    assert Pace().is_open(at("Mon 12:00"))


def test_a_batch_is_a_number_or_a_share_rounded_up() -> None:
    assert [batch_size(text, 25) for text in ("5", "10%", "100%")] == [5, 3, 25]
    for bad in ("0", "-1", "ten", "0%", "٣"):
        with pytest.raises(DeepOpsError, match="neither a number"):
            batch_size(bad, 10)


def test_one_in_twenty_nodes_may_fail_and_at_least_one_unless_it_is_set() -> None:
    assert [allowed_failures(None, count) for count in (3, 20, 100)] == [1, 1, 5]
    assert allowed_failures(0, 100) == 0

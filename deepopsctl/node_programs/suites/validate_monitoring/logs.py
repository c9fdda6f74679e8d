"""A line of every node in the journals that the monitoring host has collected."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..._shared import command
from ..._shared.checks import FAIL, PASS, Check, one_line
from ..._shared.waiting import wait_until
from .checks import check

LOG = "log-arrives"
TAG = "deepopsctl-validate"
# entries older than that are not of this validation
_SINCE = "-1h"
JOURNAL_S = 15


def evaluate(directory: str, line: str, nodes: Sequence[str], seconds: float) -> list[Check]:
    """A check for each node: its line is there."""
    started = time.monotonic()
    seen: dict[str, float] = {}
    error = ""

    def read_journal() -> dict[str, float]:
        nonlocal error
        words = ["journalctl", "--directory=" + directory, "--quiet", "--since=" + _SINCE, "--output=cat", "-t", TAG]
        answer = command.run(words, JOURNAL_S)
        error = "" if answer.ok else one_line(answer.message)
        for node in arrived(answer.output, line, nodes):
            seen.setdefault(node, time.monotonic() - started)
        return seen

    wait_until(read_journal, seconds, 0.5, lambda arrival_times: len(arrival_times) == len(nodes))
    return [_one(node, seen, seconds, error) for node in nodes]


def arrived(text: str, line: str, nodes: Sequence[str]) -> list[str]:
    """The nodes whose line of this validation is in what journalctl prints."""
    there = {entry.strip() for entry in text.splitlines()}
    return [node for node in nodes if f"{line} {node}" in there]


def _one(node: str, seen: dict[str, float], seconds: float, error: str) -> Check:
    expected = f"within {seconds:g}"
    if node in seen:
        return check(LOG, node, PASS, f"{seen[node]:.0f}", expected, "s")
    text = f"a line that the node logged has not come within {seconds:g} s" + (": " + error if error else "")
    return check(LOG, node, FAIL, "nothing", expected, message=text)

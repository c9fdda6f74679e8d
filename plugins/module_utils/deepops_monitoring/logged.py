"""A line of every node in the journals that the monitoring host has collected."""

from __future__ import annotations

import time
from typing import Dict, List, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import command

from .telling import FAIL, PASS, Verdict, check, one_line, until

LOG = "log-arrives"
TAG = "deepopsctl-validate"
# entries older than that are not of this validation
_SINCE = "-1h"


def judge(folder: str, line: str, nodes: Sequence[str], seconds: float) -> List[Verdict]:
    """A check for each node: its line is there."""
    started = time.monotonic()
    seen: Dict[str, float] = {}
    said = ""

    def look() -> Dict[str, float]:
        nonlocal said
        words = ["journalctl", "--directory=" + folder, "--quiet", "--since=" + _SINCE, "--output=cat", "-t", TAG]
        answer = command.run(words)
        said = one_line(answer.said) if answer.rc else ""
        for node in arrived(answer.out, line, nodes):
            seen.setdefault(node, time.monotonic() - started)
        return seen

    until(seconds, look, lambda found: len(found) == len(nodes), 0.5)
    return [_one(node, seen, seconds, said) for node in nodes]


def arrived(text: str, line: str, nodes: Sequence[str]) -> List[str]:
    """The nodes whose line of this validation is in what journalctl prints."""
    there = {found.strip() for found in text.splitlines()}
    return [node for node in nodes if "{} {}".format(line, node) in there]


def _one(node: str, seen: Dict[str, float], seconds: float, said: str) -> Verdict:
    expected = "within {:g}".format(seconds)
    if node in seen:
        return check(LOG, node, PASS, "{:.0f}".format(seen[node]), expected, "s")
    text = "a line that the node logged has not come within {:g} s".format(seconds) + (": " + said if said else "")
    return check(LOG, node, FAIL, "nothing", expected, message=text)

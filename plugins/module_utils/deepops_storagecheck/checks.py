"""Checks of this suite; their targets are NODE/NAME, or NAME for what all nodes did together."""

from __future__ import annotations

from functools import partial
from typing import Any, Mapping

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import checkform
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.checks import (
    FAIL,
    PASS,
    SKIP,
    WARN,
    Check,
    one_line,
)

SUITE = "storage"
NOTHING = "storage-entries"
__all__ = ["FAIL", "NOTHING", "PASS", "SKIP", "WARN", "Check", "check", "one_line", "place", "skip", "trouble"]

# one check, and one that could not be made, without the suite's name
check = partial(checkform.check, SUITE)
skip = partial(checkform.skipped, SUITE)


def place(node: str, entry: str) -> str:
    """An entry of `storage` as one node has it."""
    return "{}/{}".format(node, entry)


def trouble(result: Mapping[str, Any]) -> str:
    """Why an act gave no result; '' where it gave one."""
    if "hung" in result:
        return "no answer within {:g} s: the file system hangs".format(float(result["hung"]))
    return one_line(str(result["error"])) if "error" in result else ""

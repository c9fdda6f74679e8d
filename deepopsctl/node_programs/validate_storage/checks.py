"""Checks of this suite; their targets are NODE/NAME, or NAME for what all nodes did together."""

from __future__ import annotations

from functools import partial
from typing import Any, Mapping

from .._shared import checks
from .._shared.checks import one_line

SUITE = "storage"
NOTHING = "storage-entries"

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)


def place(node: str, entry: str) -> str:
    """An entry of `storage` as one node has it."""
    return "{}/{}".format(node, entry)


def trouble(result: Mapping[str, Any]) -> str:
    """Why an operation gave no result; '' where it gave one."""
    if "hung" in result:
        return "no answer within {:g} s: the file system hangs".format(float(result["hung"]))
    return one_line(str(result["error"])) if "error" in result else ""

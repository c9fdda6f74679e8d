"""Checks of this suite; their targets are NODE/NAME, or NAME for what all nodes did together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..._shared import checks
from ..._shared.checks import one_line

SUITE = "storage"
NOTHING = "storage-entries"

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)


def place(node: str, entry: str) -> str:
    """An entry of `storage` as one node has it."""
    return f"{node}/{entry}"


def trouble(result: Mapping[str, Any]) -> str:
    """Why an operation gave no result; '' where it gave one."""
    if "hung" in result:
        return f"no answer within {float(result['hung']):g} s: the file system hangs"
    return one_line(str(result["error"])) if "error" in result else ""

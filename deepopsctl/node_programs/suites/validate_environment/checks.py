"""Checks of this suite; their targets are nodes, or the cluster for what users do on it."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "environment"
NOTHING = "environment-people"

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)

"""Checks of this suite; their target is the node with the web pages."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "web"
LOGIN, NOTEBOOK, CELL, PRIVATE, STOPPED = "web-login", "web-notebook", "web-cell", "web-private", "web-stopped"
ALL = (LOGIN, NOTEBOOK, CELL, PRIVATE, STOPPED)

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)

"""Checks of this suite; their target is the node with the web pages."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "web"
LOGIN, FILES, NOTEBOOK, CELL = "web-login", "web-files", "web-notebook", "web-cell"
PRIVATE, STOPPED = "web-private", "web-stopped"
ALL = (LOGIN, FILES, NOTEBOOK, CELL, PRIVATE, STOPPED)

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)

"""What the tests of runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.sites import Site, make_site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Three nodes that are this host."""
    return make_site(tmp_path)

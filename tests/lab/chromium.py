"""A real browser for the lab's web pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.lab.harness import LabCluster

_PROGRAM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    _PROGRAM is None, reason="chromium is not installed (Debian's package of that name)"
)


@contextmanager
def chromium(cluster: LabCluster, host: str) -> Iterator[Browser]:
    """Chromium without a window, for which this node has its name."""
    address = cluster.root(host, "hostname -I").split()[0]
    rules = f"--host-resolver-rules=MAP {host} {address}"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_PROGRAM, args=["--no-sandbox", rules])
        yield started
        started.close()

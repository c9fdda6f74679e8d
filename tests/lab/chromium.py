"""A real browser for the lab's web pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from deepopsctl.cluster.directory import ClusterDir
from tests.lab.harness import LabCluster

_PROGRAM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    _PROGRAM is None, reason="chromium is not installed (Debian's package of that name)"
)


@contextmanager
def chromium(cluster: LabCluster) -> Iterator[Browser]:
    """Chromium without a window, for which the nodes have their names."""
    nodes = ClusterDir(cluster.directory).cluster().nodes
    rules = "--host-resolver-rules=" + ", ".join(f"MAP {node.name} {node.address}" for node in nodes)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_PROGRAM, args=["--no-sandbox", rules])
        yield started
        started.close()

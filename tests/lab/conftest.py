"""Fixtures that start real clusters. A failed test leaves nothing behind either."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.harness import NOT_POSSIBLE, PREFIX, LabCluster, fresh_cluster, lab_down


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: it is ignored below a shell that runs them in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a lab."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)
            if NOT_POSSIBLE:
                item.add_marker(pytest.mark.skip(reason=NOT_POSSIBLE))


@pytest.fixture(scope="module", params=["debian12", "debian13"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A fresh lab of one controller and two nodes with two simulated GPUs, reached by key, nothing deployed."""
    name = f"{PREFIX}-{request.param}"
    try:
        yield fresh_cluster(name, tmp_path_factory.mktemp(name), "--compute", "2", "--gpus", "a100:2", os=request.param)
    finally:
        lab_down(name)


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A deployed cluster (a controller, two nodes with two simulated GPUs) for tests that leave it as they found it."""
    name = f"{PREFIX}-deployed"
    try:
        found = fresh_cluster(name, tmp_path_factory.mktemp(name), "--compute", "2", "--gpus", "a100:2")
        found.deploy()
        yield found
    finally:
        lab_down(name)

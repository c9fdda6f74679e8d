"""Fixtures that start real clusters. A failed test leaves nothing behind either."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.harness import NOT_POSSIBLE, PREFIX, LabCluster, SharedCluster, fresh_cluster, lab_down


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: it is ignored below a shell that runs them in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in this folder needs a lab, some of it one release, and one module leaves no shared cluster behind."""
    elsewhere = [item for item in items if not _wanted_on_its_release(item)]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
    items[:] = sorted((item for item in items if item not in elsewhere), key=_takes_the_shared_cluster_apart)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)
            if NOT_POSSIBLE:
                item.add_marker(pytest.mark.skip(reason=NOT_POSSIBLE))


def _wanted_on_its_release(item: pytest.Item) -> bool:
    """Whether a test of several releases is meant for this one: some prove nothing new on a second."""
    only, call = item.get_closest_marker("release"), getattr(item, "callspec", None)
    return only is None or call is None or call.params.get("cluster", only.args[0]) == only.args[0]


def _takes_the_shared_cluster_apart(item: pytest.Item) -> bool:
    return "expendable" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="module", params=["debian12", "debian13"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A fresh lab of one controller and two nodes with two simulated GPUs, reached by key, nothing deployed."""
    name = f"{PREFIX}-{request.param}"
    try:
        yield fresh_cluster(name, tmp_path_factory.mktemp(name), "--compute", "2", "--gpus", "a100:2", os=request.param)
    finally:
        lab_down(name)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """What `deployed` and `expendable` are about."""
    found = SharedCluster(f"{PREFIX}-deployed", tmp_path_factory)
    try:
        yield found
    finally:
        found.discard()


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, shared: SharedCluster) -> Iterator[LabCluster]:
    """A deployed cluster (a controller, two nodes with two simulated GPUs) for tests that leave it as they found it."""
    before = request.session.testsfailed
    yield shared.get()
    # nobody knows what state they left it in
    if request.session.testsfailed != before:
        shared.discard()


@pytest.fixture(scope="module")
def expendable(shared: SharedCluster) -> Iterator[LabCluster]:
    """The same cluster, for the tests that take it apart: they run when no others need it any more."""
    yield shared.get()
    shared.discard()

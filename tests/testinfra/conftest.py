"""A suite for a cluster that runs: `pytest tests/testinfra --cluster DIR`. Without a cluster nothing is collected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deepopsctl.errors import DeepOpsError
from deepopsctl.model.cluster import Role

if TYPE_CHECKING:
    from tests.testinfra.collect import Live, Snapshot

HERE = Path(__file__).parent
LIVE = pytest.StashKey["Live"]()
# the nodes that a test gets one by one, by the name of its argument
NODES: dict[str, tuple[Role, ...]] = {
    "node": tuple(Role),
    "compute_node": (Role.COMPUTE,),
    "client": (Role.CONTROLLER, Role.LOGIN),
    "dbd_host": (Role.DBD,),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", metavar="DIR", type=Path, help="cluster directory of the cluster to look at")


def pytest_configure(config: pytest.Config) -> None:
    directory: Path | None = config.getoption("--cluster")
    if directory is None:
        asked = [Path(word.partition("::")[0]).resolve() for word in config.args]
        if any(HERE in (path, *path.parents) for path in asked):
            raise pytest.UsageError("tests/testinfra looks at a cluster that runs: give its directory, --cluster DIR")
        return
    # every run of the tests reads this file: imports for queries of nodes are only in functions
    from tests.testinfra.collect import Live

    try:
        config.stash[LIVE] = Live(directory)
    except DeepOpsError as error:
        raise pytest.UsageError(f"--cluster {directory}: {error}") from error


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this directory out of a run that has no cluster to test."""
    in_suite = collection_path == HERE or HERE in collection_path.parents
    return True if in_suite and LIVE not in config.stash else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    live = metafunc.config.stash.get(LIVE, None)
    for argument, roles in NODES.items():
        if live and argument in metafunc.fixturenames:
            metafunc.parametrize(argument, live.names(*roles), indirect=True)


@pytest.fixture(scope="session")
def live(request: pytest.FixtureRequest) -> Live:
    """The cluster."""
    return request.config.stash[LIVE]


def _snapshot(request: pytest.FixtureRequest, live: Live) -> Snapshot:
    snapshot = live.snapshots[request.param]
    if snapshot.silence:
        # test_it_answers fails for it, once is enough
        pytest.skip(f"{snapshot.node} does not answer: {snapshot.silence}")
    return snapshot


@pytest.fixture
def node(request: pytest.FixtureRequest, live: Live) -> Snapshot:
    """Every node that answers, one after the other."""
    return _snapshot(request, live)


@pytest.fixture
def compute_node(request: pytest.FixtureRequest, live: Live) -> Snapshot:
    """Every compute node that answers."""
    return _snapshot(request, live)


@pytest.fixture
def client(request: pytest.FixtureRequest, live: Live) -> Snapshot:
    """Every controller and login node that answers."""
    return _snapshot(request, live)


@pytest.fixture
def dbd_host(request: pytest.FixtureRequest, live: Live) -> Snapshot:
    """The host of the accounting database."""
    return _snapshot(request, live)

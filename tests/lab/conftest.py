"""Fixtures that start real clusters. A failed test leaves nothing behind either."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.lab.chromium import chromium
from tests.lab.harness import NOT_POSSIBLE, PREFIX, LabCluster, SharedCluster
from tests.lab.leaks import Leaks
from tests.lab.monitored import OPTIONAL, MonitoredCluster, fresh_monitored, monitor


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: it is ignored below a shell that runs them in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in this directory needs a lab, some of it one release, and a shared cluster lives but once."""
    elsewhere = [item for item in items if not _wanted_on_its_release(item)]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
    items[:] = sorted((item for item in items if item not in elsewhere), key=_age_of_the_shared_cluster)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)
            for mark in _of_which_cluster(item):
                item.add_marker(mark)
            if NOT_POSSIBLE:
                item.add_marker(pytest.mark.skip(reason=NOT_POSSIBLE))


def _wanted_on_its_release(item: pytest.Item) -> bool:
    """Whether a test of several releases is meant for this one: some show nothing new on a second."""
    only, call = item.get_closest_marker("release"), getattr(item, "callspec", None)
    return only is None or call is None or call.params.get("cluster", only.args[0]) == only.args[0]


def _of_which_cluster(item: pytest.Item) -> list[str]:
    """The mark by which scripts/run-tests has all tests of a shared cluster in one run."""
    marks = {"shared": "shared_cluster", "second": "battered_cluster", "monitored": "monitored_cluster"}
    return [mark for fixture, mark in marks.items() if fixture in getattr(item, "fixturenames", ())]


def _age_of_the_shared_cluster(item: pytest.Item) -> int:
    """Its ages one after the other; tests without it are among those of its long middle age."""
    wanted = getattr(item, "fixturenames", ())
    ages = {"bare": 0, "to_deploy": 1, "battered": 3, "expendable": 5, "monitored_no_more": 5, "monitored": 4}
    return next((age for fixture, age in ages.items() if fixture in wanted), 2)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """What `bare`, `to_deploy`, `deployed` and `expendable` are about: a controller, two nodes with two GPUs each."""
    cluster = SharedCluster(f"{PREFIX}-shared", tmp_path_factory)
    try:
        yield cluster
    finally:
        cluster.discard()


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """Another one, for a second run of such tests in parallel with the first: what `battered` is about."""
    cluster = SharedCluster(f"{PREFIX}-battered", tmp_path_factory)
    try:
        yield cluster
    finally:
        cluster.discard()


@pytest.fixture(scope="module")
def sound(request: pytest.FixtureRequest, shared: SharedCluster) -> Iterator[SharedCluster]:
    """It is discarded where a test of the module failed: its state is unknown then."""
    with skip_after_a_failure(shared, request.session):
        yield shared


@contextmanager
def skip_after_a_failure(cluster: SharedCluster, session: pytest.Session) -> Iterator[None]:
    """One module's use of a cluster."""
    before = session.testsfailed
    yield
    if session.testsfailed != before:
        cluster.discard()


@pytest.fixture(scope="module")
def bare(sound: SharedCluster) -> LabCluster:
    """Nodes on which nothing was deployed, for tests that leave them as they were."""
    return sound.bare()


@pytest.fixture(scope="module")
def to_deploy(sound: SharedCluster) -> LabCluster:
    """The same nodes, for the one test that deploys there for the first time."""
    return sound.to_deploy()


@pytest.fixture(scope="module")
def deployed(sound: SharedCluster) -> LabCluster:
    """The deployed cluster, for tests that leave it as they found it."""
    return sound.deployed()


@pytest.fixture(scope="module")
def battered(request: pytest.FixtureRequest, second: SharedCluster) -> Iterator[LabCluster]:
    """A deployed cluster for tests that damage it and heal what they damaged."""
    with skip_after_a_failure(second, request.session):
        yield second.deployed()


@pytest.fixture(scope="module")
def leaks(cluster: LabCluster) -> Leaks:
    """The secrets of the module's own `cluster`, those from before its rotations as well."""
    search = Leaks(cluster)
    search.forms()
    return search


@pytest.fixture(scope="module")
def browser(cluster: LabCluster) -> Iterator[Browser]:
    """Chromium for the pages of the module's own `cluster`."""
    with chromium(cluster) as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window of no user."""
    with browser.new_context(ignore_https_errors=True) as context:
        yield context.new_page()


@pytest.fixture(scope="module")
def expendable(shared: SharedCluster) -> Iterator[LabCluster]:
    """The same cluster, for the tests that take it apart: they run when no others need it any more."""
    yield shared.deployed()
    shared.discard()


@pytest.fixture(scope="session")
def monitored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    """A controller and a node (and by one of the tests a second) with Slurm and monitoring, for all tests of that."""
    # in `make test` the shared cluster becomes one
    if str(request.config.option.markexpr).startswith("every_change"):
        yield monitor(request.getfixturevalue("shared").deployed())
        return
    with fresh_monitored(f"{PREFIX}-monitored", tmp_path_factory, "--compute", "1", settings=OPTIONAL) as made:
        made.deploy()
        yield made


@pytest.fixture
def monitored_no_more(monitored: MonitoredCluster) -> MonitoredCluster:
    """The same cluster, for tests that remove monitoring: they run when no others need it any more."""
    return monitored

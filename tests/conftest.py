"""What all tests share: their order, and a place of their own for what their programs leave among temporary files."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# what fails there is known within minutes; all other tests have machines
WITHOUT_MACHINES = ("tests/unit/", "tests/integration/", "tests/roles/", "tests/integration/monitoring/")
LONG_S = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs no machines comes first."""
    items.sort(key=lambda item: not item.nodeid.startswith(WITHOUT_MACHINES))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: that each search for garbage goes through it costs a tenth."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which modules take the time, also to scripts/run-tests."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    long = sorted(((taken, module) for module, taken in seconds.items() if taken >= LONG_S), reverse=True)
    # there is none with `-p no:cacheprovider`
    if cache := getattr(config, "cache", None):
        cache.set("cache/module_seconds", {module: round(taken, 1) for taken, module in long})
    if long:
        terminalreporter.section("modules by seconds")
        for taken, module in long:
            terminalreporter.write_line(f"{taken:6.0f} {module}")


@pytest.fixture(scope="session", autouse=True)
def directory_for_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Empty for this run, gone after it: a folder of sockets for each cluster directory, and what a kill -9 leaves."""
    # pytest's own folders stay where people look for them
    tmp_path_factory.getbasetemp()
    # short, for the paths of sockets
    directory = Path(tempfile.mkdtemp(prefix="dt-", dir="/tmp"))
    # as /tmp itself: programs of other users, such as apt's, work below it
    directory.chmod(0o1777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(directory))
        patch.setattr(tempfile, "tempdir", str(directory))
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield
    shutil.rmtree(directory, ignore_errors=True)

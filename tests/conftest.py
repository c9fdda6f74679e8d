"""What all tests share: their order, and a place of their own for what their programs leave among temporary files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# may run beside each other; all other tests have machines, and want the one they run on for themselves
BESIDE_EACH_OTHER = ("tests/unit/", "tests/integration/", "tests/roles/")


class Scheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """What is run in one piece by one of several processes: a module, and all tests with machines together."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(BESIDE_EACH_OTHER) else "with machines"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Take ours, whatever --dist says."""
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is quick comes first."""
    items.sort(key=lambda item: not item.nodeid.startswith(BESIDE_EACH_OTHER))


@pytest.fixture(scope="session", autouse=True)
def folder_for_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Empty for this run, gone after it: a folder of sockets for each cluster directory, and what a kill -9 leaves."""
    # pytest's own folders stay where people look for them
    tmp_path_factory.getbasetemp()
    # short, for the paths of sockets
    folder = Path(tempfile.mkdtemp(prefix="dt-", dir="/tmp"))
    # as /tmp itself: programs of other users, such as apt's, work below it
    folder.chmod(0o1777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield
    shutil.rmtree(folder, ignore_errors=True)

"""Fixtures that start real clusters. A failed test leaves nothing behind either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.harness import NOT_POSSIBLE, LabCluster, command, lab_down, lab_up


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
    name = f"test-{request.param}"
    lab_down(name)
    try:
        lab = lab_up(name, "--os", request.param, "--compute", "2", "--gpus", "a100:2")
        directory = tmp_path_factory.mktemp(name) / "cluster"
        made = command("init", str(directory), "--from", lab["node_list"])
        assert made.returncode == 0, made.stderr
        found = LabCluster(name, request.param, directory, Path(lab["node_list"]), Path(lab["password_file"]))
        found.deepopsctl("ssh", "setup", "--password-file", str(found.password_file))
        yield found
    finally:
        lab_down(name)

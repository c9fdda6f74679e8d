"""The cluster directory: where things are, and keeping hosts.yml up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.errors import InputError
from tests.support.problems import problems_of

TEXT = "schema: 1\nnodes:\n  - {names: ctl1, roles: [controller]}\n  - {names: n1, roles: [compute]}\n"


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    (tmp_path / "cluster.yml").write_text(TEXT)
    return ClusterDir.open(tmp_path)


def test_reads_its_cluster_and_names_the_file_in_faults(directory: ClusterDir) -> None:
    assert [node.name for node in directory.cluster().nodes] == ["ctl1", "n1"]
    directory.spec.write_text(TEXT + "extra: 1\n")
    with pytest.raises(InputError, match=r"^cluster.yml:5: extra: unknown key$"):
        directory.cluster()


def test_writes_the_inventory_only_where_it_differs(directory: ClusterDir) -> None:
    cluster = directory.cluster()
    assert directory.refresh_inventory(cluster)
    before = directory.hosts.stat()
    assert not directory.refresh_inventory(cluster)
    assert directory.hosts.stat().st_mtime_ns == before.st_mtime_ns
    assert directory.hosts.stat().st_ino == before.st_ino


def test_repairs_an_inventory_that_was_edited_by_hand(directory: ClusterDir) -> None:
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    directory.hosts.write_text("all:\n")
    assert directory.refresh_inventory(cluster)
    assert directory.hosts.read_text() == render_inventory(cluster)


def test_a_missing_file_of_secrets_is_named_with_the_way_out(directory: ClusterDir) -> None:
    directory.secrets.unlink(missing_ok=True)

    (problem,) = problems_of(directory.refresh_secrets)

    assert problem.where.endswith("secrets.yml")
    assert "is missing" in problem.message
    assert "worst-night" in problem.hint

"""Stage deploy: from fresh machines to a validated cluster. The snapshot of the other stages is taken on the way.

That a full deploy and a trial run change nothing either is Molecule's part.
"""

from __future__ import annotations

import json

import pytest

from tests.vm.stages.stand import Stand
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster


@pytest.fixture(scope="module")
def cluster(stand: Stand) -> VmCluster:
    """Fresh machines, nothing deployed."""
    return stand.fresh()


def test_the_first_deploy_ends_with_the_node_idle(cluster: VmCluster, stand: Stand) -> None:
    summary = cluster.deploy()

    assert summary["ok"], summary
    assert cluster.root(CONTROLLER, "sinfo -h -N -o '%N %T %G'") == f"{NODE} idle gpu:loop:2"
    stand.save_snapshot()


def test_the_nodes_have_cgroup_v2_and_slurm_uses_it(cluster: VmCluster) -> None:
    for node in cluster.addresses:
        assert cluster.root(node, "stat --file-system --format=%T /sys/fs/cgroup") == "cgroup2fs"
    assert "cgroup/v2" in cluster.root(CONTROLLER, "scontrol show config | grep -w CgroupPlugin")


def test_a_second_deploy_changes_nothing(cluster: VmCluster) -> None:
    summary = cluster.deploy()

    assert set(cluster.changed(summary).values()) == {0}
    assert all(counts["ok"] <= cluster.unchanged_tasks for counts in summary["hosts"].values())


def test_the_smoke_validation_passes(cluster: VmCluster) -> None:
    document = json.loads(cluster.deepopsctl("validate", "smoke", "--json").stdout)

    outcomes = {check["name"]: check["status"] for check in document["checks"]}
    assert "fail" not in outcomes.values(), document["checks"]
    tried = ("cpu-confinement", "memory-confinement", "gpu-confinement", "accounting-jobs")
    assert {outcomes[name] for name in tried} == {"pass"}, document["checks"]

"""Stage power_cut: a machine loses its power while a deploy installs a package on it. The next deploy repairs it."""

from __future__ import annotations

import pytest

from tests.lab.faults import assert_heals, in_the_middle_of_an_install
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster


@pytest.mark.parametrize("victim", [NODE, CONTROLLER])
def test_a_deploy_that_lost_a_node_in_the_middle_is_finished_by_the_next(cluster: VmCluster, victim: str) -> None:
    with in_the_middle_of_an_install(cluster, victim) as deploy:
        cluster.power_cut(victim)
        code, document, seen = deploy.end()

        # the others are served; but a node can't be verified without its controller
        assert code == 4 or (victim == CONTROLLER and code == 1), seen
        assert victim in [failure["host"] for failure in document["failures"]], document["failures"]

    # dpkg was stopped half way, by a machine that had no time to write what it still had in memory
    assert cluster.root(victim, "dpkg --audit") != ""
    assert_heals(cluster)
    assert cluster.root(victim, "dpkg --audit") == ""
    assert cluster.user(CONTROLLER, "srun -n1 --mem=100M hostname") == NODE

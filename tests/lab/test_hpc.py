"""`validate hpc` on two nodes: HPC Challenge of Debian, each node by itself and both as one program; a slow node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, limit_cores
from tests.lab.smoke import validate

NODES = ("cn01", "cn02")
BOTH = "cn[01-02]"
# two nodes that share the cores of one machine are not equally fast at any time
DECLARED = """\
environment_packages_more: [hpcc]
modules_system: none
validate_hpc_memory_share: 0.0005
validate_hpc_share: 0.4
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    with fresh_cluster(f"{PREFIX}-hpc", tmp_path_factory, "--compute", "2") as made:
        edit(made.directory / "cluster.yml", "components: [slurm]", "components: [slurm, environment]")
        edit(made.directory / SETTINGS, "---\n", f"---\n{DECLARED}")
        made.deepopsctl("deploy")
        yield made


def test_each_node_and_both_give_right_results_and_rates(cluster: LabCluster) -> None:
    result = validate(cluster, suite="hpc")

    of_nodes = {(f"hpc-{what}", node): "pass" for what in ("node", "hpl", "stream", "fft") for node in NODES}
    of_both = {(f"hpc-{what}", BOTH): "pass" for what in ("together", "hpl-together")}
    assert {key: check["status"] for key, check in result.checks.items()} == of_nodes | of_both, result.shown
    assert not cluster.holds("cn01", "ls -d /tmp/hpcc.* | grep .")


def test_a_slow_node_is_behind_the_other_and_its_past(cluster: LabCluster) -> None:
    with limit_cores(cluster, "cn02", 0.2):
        result = validate(cluster, suite="hpc")

    assert ("hpc-hpl", "cn02") in result.failed(), result.shown
    assert ("hpc-hpl", "cn01") not in result.failed()
    assert "its own past" in result.message("hpc-hpl", "cn02")

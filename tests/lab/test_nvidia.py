"""The driver from Debian's own packages on real nodes, up to what needs a kernel: a container has its host's.

The nodes' GPUs are simulated, so the driver is asked for as for an image: `nvidia_driver_without_device`. 13 MB a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import PREFIX, LabCluster, actions, fresh_cluster

pytestmark = pytest.mark.without_slurm

SETTINGS = "\nnvidia_driver_source: distro\nnvidia_driver_without_device: true\n"
# packages, and what a deploy of this component writes
WRITTEN = "dpkg-query --show; find /etc -name 'deepopsctl*'"
SOURCES = "/etc/apt/sources.list.d/deepopsctl-nvidia.sources"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and a node with two simulated GPUs, nothing deployed."""
    with fresh_cluster(f"{PREFIX}-nvidia", tmp_path_factory, "--compute", "1", "--gpus", "a100:2") as made:
        yield made


def test_a_node_whose_gpus_are_not_on_the_bus_is_left_alone(cluster: LabCluster) -> None:
    before = cluster.root("gpu01", WRITTEN)

    assert cluster.parsed("plan", "nvidia")["changes"] == []
    first = cluster.parsed("deploy", "nvidia")
    again = cluster.parsed("deploy", "nvidia")

    # the node is checked each time, as its GPUs may come; the controller is only asked who holds the lock
    assert set(first["hosts"]) == set(again["hosts"]) == {"ctl1", "gpu01"}
    assert (first["hosts"]["gpu01"]["changed"], again["hosts"]["gpu01"]["changed"]) == (0, 0)
    assert again["hosts"]["gpu01"]["ok"] < 5
    assert cluster.root("gpu01", WRITTEN) == before


@pytest.fixture(scope="module")
def deploys(cluster: LabCluster) -> dict[str, dict[str, Any]]:
    """What plan predicted, what the first deploy did, and a rerun of each type."""
    settings = cluster.directory / "inventory" / "group_vars" / "all" / "settings.yml"
    settings.write_text(settings.read_text(encoding="utf-8") + SETTINGS, encoding="utf-8")
    return {
        "plan": cluster.parsed("plan", "nvidia"),
        "first": cluster.parsed("deploy", "nvidia"),
        "full": cluster.parsed("deploy", "nvidia", "--full"),
        "again": cluster.parsed("deploy", "nvidia"),
    }


def test_plan_predicts_the_deploy_and_the_controller_is_only_claimed(
    cluster: LabCluster, deploys: dict[str, dict[str, Any]]
) -> None:
    planned = actions(deploys["plan"], "gpu01")

    assert {
        ("file", SOURCES, "write"),
        ("file", "/etc/apt/preferences.d/deepopsctl-nvidia", "write"),
        ("package", "libcuda1", "install"),
        ("package", "nvidia-smi", "install"),
        ("hold", "libcuda1", "hold"),
    } <= planned
    # the libraries that come with a package are known once they are there
    assert {entry for entry in actions(deploys["first"], "gpu01") if entry[0] != "hold"} == {
        entry for entry in planned if entry[0] != "hold"
    }
    counts = deploys["first"]["hosts"].pop("ctl1")
    assert (counts["ok"], counts["changed"]) == (1, 0)
    assert set(deploys["first"]["hosts"]) == {"gpu01"}
    log = cluster.directory / "runs" / deploys["first"]["run"] / "stdout.log"
    assert "Claim the cluster for this run" in log.read_text()


def test_the_second_run_changes_nothing_with_and_without_the_gate(deploys: dict[str, dict[str, Any]]) -> None:
    assert deploys["full"]["hosts"]["gpu01"]["changed"] == 0
    assert deploys["again"]["hosts"]["gpu01"]["changed"] == 0
    assert deploys["again"]["hosts"]["gpu01"]["ok"] < 5
    assert deploys["again"]["warnings"] == []


@pytest.mark.usefixtures("deploys")
def test_the_whole_driver_is_there_of_one_version_and_held(cluster: LabCluster) -> None:
    held = cluster.root("gpu01", "apt-mark showhold").split()
    versions = cluster.root("gpu01", f"dpkg-query --show --showformat '${{Version}}\\n' {' '.join(held)}").split()

    assert {"libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-smi", "nvidia-persistenced"} <= set(held)
    assert len({version.rpartition("-")[0] for version in versions}) == 1
    assert versions[0].startswith("550.")


@pytest.mark.usefixtures("deploys")
def test_nvidias_own_repository_can_not_mix_in(cluster: LabCluster) -> None:
    shown = cluster.root("gpu01", "apt-cache policy libcuda1; apt-cache policy | grep -A1 developer || true")
    warned = cluster.root("gpu01", "apt-get update 2>&1")

    assert " 990" in shown
    assert "W:" not in warned, warned


@pytest.mark.usefixtures("deploys")
def test_persistence_waits_for_a_kernel_module_and_nothing_fails(cluster: LabCluster) -> None:
    shown = cluster.root("gpu01", "systemctl show nvidia-persistenced -p ActiveState,ConditionResult,UnitFileState")

    assert set(shown.split()) == {"ActiveState=inactive", "ConditionResult=no", "UnitFileState=enabled"}
    assert cluster.root("gpu01", "systemctl --failed --no-legend") == ""

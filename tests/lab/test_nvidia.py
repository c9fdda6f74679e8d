"""The driver from Debian's own packages on real nodes, up to what needs a kernel: a container has its host's.

The nodes' GPUs are simulated, so the driver is asked for as for an image: `nvidia_driver_without_device`. 13 MB a node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, lab_down

pytestmark = pytest.mark.without_slurm

SETTINGS = "\nnvidia_driver_source: distro\nnvidia_driver_without_device: true\n"
# packages, and what a deploy of this component writes
WRITTEN = "dpkg-query --show; find /etc -name 'deepopsctl*'"
SOURCES = "/etc/apt/sources.list.d/deepopsctl-nvidia.sources"


def run(cluster: LabCluster, *arguments: str, ok: bool = True) -> dict[str, Any]:
    """A command with --json, parsed."""
    document: dict[str, Any] = json.loads(cluster.deepopsctl(*arguments, "--json", ok=ok).stdout)
    return document


def changes(document: dict[str, Any], host: str) -> list[tuple[str, str, str]]:
    """Type, name and action of what changes on a host."""
    return [(entry["kind"], entry["name"], entry["action"]) for entry in document["changes"] if entry["host"] == host]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and a node with two simulated GPUs, nothing deployed."""
    name = f"{PREFIX}-nvidia"
    try:
        yield fresh_cluster(name, tmp_path_factory.mktemp(name), "--compute", "1", "--gpus", "a100:2")
    finally:
        lab_down(name)


def test_a_node_whose_gpus_are_not_on_the_bus_is_left_alone(cluster: LabCluster) -> None:
    before = cluster.root("gpu01", WRITTEN)

    assert run(cluster, "plan", "nvidia")["changes"] == []
    first = run(cluster, "deploy", "nvidia")
    again = run(cluster, "deploy", "nvidia")

    # the node is checked each time, as its GPUs may come; the controller is only asked who holds the lock
    assert set(first["hosts"]) == set(again["hosts"]) == {"ctl1", "gpu01"}
    assert (first["hosts"]["gpu01"]["changed"], again["hosts"]["gpu01"]["changed"]) == (0, 0)
    assert again["hosts"]["gpu01"]["ok"] < 5
    assert cluster.root("gpu01", WRITTEN) == before


def test_a_key_that_can_not_be_had_leaves_the_node_as_it_was(cluster: LabCluster) -> None:
    wanted = {"source": "repository", "without_device": "true", "repository_url": "http://127.0.0.1:9/repos"}
    options = [word for name, value in wanted.items() for word in ("-e", f"nvidia_driver_{name}={value}")]
    before = cluster.root("gpu01", WRITTEN)

    refused = run(cluster, "deploy", "nvidia", *options, ok=False)

    (failure,) = refused["failures"]
    assert "cannot fetch http://127.0.0.1:9/repos/debian13/x86_64/8793F200.pub" in failure["message"]
    assert "nvidia_driver_repository_url" in failure["hint"]
    assert cluster.root("gpu01", WRITTEN) == before


@pytest.fixture(scope="module")
def deploys(cluster: LabCluster) -> dict[str, dict[str, Any]]:
    """What plan predicted, what the first deploy did, and a rerun of each type."""
    settings = cluster.directory / "inventory" / "group_vars" / "all" / "settings.yml"
    settings.write_text(settings.read_text(encoding="utf-8") + SETTINGS, encoding="utf-8")
    return {
        "plan": run(cluster, "plan", "nvidia"),
        "first": run(cluster, "deploy", "nvidia"),
        "full": run(cluster, "deploy", "nvidia", "--full"),
        "again": run(cluster, "deploy", "nvidia"),
    }


def test_plan_predicts_the_deploy_and_the_controller_is_only_claimed(
    cluster: LabCluster, deploys: dict[str, dict[str, Any]]
) -> None:
    planned = set(changes(deploys["plan"], "gpu01"))

    assert {
        ("file", SOURCES, "write"),
        ("file", "/etc/apt/preferences.d/deepopsctl-nvidia", "write"),
        ("package", "libcuda1", "install"),
        ("package", "nvidia-smi", "install"),
        ("hold", "libcuda1", "hold"),
    } <= planned
    # the libraries that come with a package are known once they are there
    assert {entry for entry in changes(deploys["first"], "gpu01") if entry[0] != "hold"} == {
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


@pytest.mark.usefixtures("deploys")
def test_the_gate_detects_an_edited_pin_and_deploy_restores_it(cluster: LabCluster) -> None:
    cluster.root("gpu01", "echo '# by hand' >> /etc/apt/preferences.d/deepopsctl-nvidia")

    deployed = run(cluster, "deploy", "nvidia")

    assert changes(deployed, "gpu01") == [("file", "/etc/apt/preferences.d/deepopsctl-nvidia", "write")]


@pytest.mark.usefixtures("deploys")
def test_a_driver_of_the_run_installer_is_refused_with_what_to_do(cluster: LabCluster) -> None:
    cluster.root("gpu01", "touch /usr/bin/nvidia-uninstall")
    try:
        refused = run(cluster, "deploy", "nvidia", "--full", ok=False)
        planned = run(cluster, "plan", "nvidia", "--full", ok=False)
    finally:
        cluster.root("gpu01", "rm /usr/bin/nvidia-uninstall")

    (failure,) = refused["failures"]
    assert "a driver of NVIDIA's .run installer is there (/usr/bin/nvidia-uninstall)" in failure["message"]
    assert "nvidia_driver_source: present" in failure["message"]
    assert [entry["message"] for entry in planned["blocked"]] == [failure["message"]]

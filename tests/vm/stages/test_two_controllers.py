"""Stage two_controllers: two controllers with Slurm's state on NFS, on kernels of their own.

They are other machines than those of the other stages, which rest meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.faults import running_job, wait_until_saved
from tests.lab.test_two_controllers import IN_CONTROL, MOUNT
from tests.support.cluster import wait_until
from tests.vm.stages.conftest import KEEP
from tests.vm.stages.stand import Stand, stand_for
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

SECOND = "ctl2"


@pytest.fixture(scope="module")
def cluster(stand: Stand) -> Iterator[VmCluster]:
    """Three machines, everything is deployed."""
    if stand.os != "debian13":
        pytest.skip("Slurm before 24.11.5 fails when control changes, and is refused")
    stand.rest()
    own = stand_for(stand.os, "two_controllers")
    try:
        made = own.fresh()
        made.root(NODE, "mkdir -p /srv/state")
        assert made.deploy()["ok"]
        yield made
    finally:
        if not KEEP:
            own.clear()


def wait_for_control(cluster: VmCluster, controller: str) -> None:
    """Wait until this controller is in control, as it sees it."""
    wait_until(
        f"{controller} is in control", lambda: cluster.root(controller, IN_CONTROL) == controller, cluster.patience_s
    )


def test_both_have_the_state_on_nfs(cluster: VmCluster) -> None:
    for controller in (CONTROLLER, SECOND):
        assert cluster.root(controller, f"findmnt --noheadings --output FSTYPE {MOUNT}") == "nfs4"
    ping = cluster.root(NODE, "scontrol ping")
    assert f"Slurmctld(primary) at {CONTROLLER} is UP" in ping
    assert f"Slurmctld(backup) at {SECOND} is UP" in ping
    assert set(cluster.changed(cluster.deploy()).values()) == {0}


def test_the_suite_interrupts_the_first_controller_and_loses_nothing(cluster: VmCluster) -> None:
    document = cluster.parsed("validate", "ha", ok=False)

    assert {check["status"] for check in document["checks"]} == {"pass"}, document["checks"]


def test_a_job_goes_on_when_the_first_controller_loses_its_power(cluster: VmCluster) -> None:
    with running_job(cluster, NODE) as job:
        wait_until_saved(cluster, job, f"{MOUNT}/slurmctld")

        cluster.power_cut(CONTROLLER)

        wait_for_control(cluster, SECOND)
        new = int(cluster.user(NODE, "sbatch --parsable --output=/dev/null --mem=100M --wrap hostname"))
        assert cluster.user(SECOND, f"squeue --noheader --format=%T --job {job}") == "RUNNING"
        cluster.power_on(CONTROLLER)
        wait_for_control(cluster, CONTROLLER)
        assert cluster.job_state(job) == "RUNNING"
    cluster.wait_for_rows([job, new])


def test_slurm_waits_for_a_file_server_that_restarts(cluster: VmCluster) -> None:
    with running_job(cluster, NODE) as job:
        wait_until_saved(cluster, job, f"{MOUNT}/slurmctld")
        cluster.root(NODE, "systemctl restart nfs-server")
        # it makes its clients wait for 90 s
        submitting = "sbatch --output=/dev/null --mem=100M --wrap hostname"
        wait_until("jobs can be submitted", lambda: cluster.holds(CONTROLLER, submitting), cluster.patience_s)
        assert cluster.job_state(job) == "RUNNING"
    cluster.wait_for_rows([job])
    assert set(cluster.changed(cluster.deploy()).values()) == {0}

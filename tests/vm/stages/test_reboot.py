"""Stage reboot: a node restarts in the middle of a job queue, as for a new kernel, and nothing of the queue is lost."""

from __future__ import annotations

from tests.lab.faults import running_job
from tests.vm.stages.vmcluster import NODE, VmCluster

WHY = ("--reason", "a new kernel")


def test_a_node_is_drained_and_rebooted_and_the_queue_goes_on(cluster: VmCluster) -> None:
    with running_job(cluster, NODE) as running:
        queued = [cluster.submit("hostname", "--exclusive", "--mem=100M") for _ in range(3)]
        cluster.deepopsctl("node", "drain", NODE, *WHY)

        cluster.wait_for_state("draining")
        assert cluster.job_state(running) == "RUNNING"
        assert {cluster.job_state(job) for job in queued} == {"PENDING"}

    cluster.deepopsctl("node", "drain", NODE, *WHY, "--wait")
    cluster.reboot_drained()
    assert {cluster.job_state(job) for job in queued} == {"PENDING"}

    cluster.deepopsctl("node", "resume", NODE)

    cluster.wait_for_rows([running, *queued])
    cluster.wait_for_state("idle")
    # the confinement and the devices are as they were: a boot does not depend on a deploy
    summary = cluster.deploy()
    assert set(cluster.changed(summary).values()) == {0}, summary


def test_a_node_that_reboots_unannounced_is_returned_by_the_next_deploy(cluster: VmCluster) -> None:
    cluster.reboot(NODE)
    cluster.wait_for_state("down")

    summary = cluster.deploy()

    assert f"{NODE}: returned to service: Node unexpectedly rebooted" in str(summary["warnings"]), summary
    cluster.wait_for_state("idle")
    cluster.wait_for_rows([cluster.submit("hostname", "--mem=100M")])

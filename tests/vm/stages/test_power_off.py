"""Stage power_off: the controller loses its power while jobs run, end and wait. All of them are there afterwards."""

from __future__ import annotations

from tests.lab.faults import assert_heals, holds, running_job, wait_until_saved
from tests.support.cluster import wait_until
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

SENT_FOR_A_MINUTE = """systemctl is-active --quiet systemd-journal-upload &&
started=$(systemctl show --property ActiveEnterTimestamp --value systemd-journal-upload) &&
test $(($(date +%s) - $(date +%s --date="$started"))) -gt 60"""


def works(job: int) -> str:
    """A shell test on the node, that needs no slurmctld: the job's script is there."""
    return f"pgrep -f 'job0*{job}/slurm_script'"


def test_no_job_is_lost_when_the_controller_loses_its_power(cluster: VmCluster) -> None:
    before = cluster.submit("hostname", "--mem=100M")
    cluster.wait_for_rows([before])
    with running_job(cluster, NODE) as long:
        with running_job(cluster, NODE) as short:
            queued = cluster.submit("hostname", "--exclusive", "--mem=100M")
            for job in (long, short, queued):
                wait_until_saved(cluster, job)
            # Slurm leaves it to the kernel when a script is written, which takes it half a minute
            cluster.root(CONTROLLER, "sync")

            cluster.power_cut(CONTROLLER)
            cluster.root(NODE, f"touch /tmp/go-{short}")
            wait_until("the short job ends", lambda: not holds(cluster, NODE, works(short)), cluster.patience_s)
            assert holds(cluster, NODE, works(long))
            cluster.power_on(CONTROLLER)

            wait_until(
                "slurmctld answers",
                lambda: holds(cluster, CONTROLLER, "scontrol ping | grep -q UP"),
                cluster.patience_s,
            )
            # this block ends when slurmdbd has the short one as COMPLETED
        assert cluster.job_state(long) == "RUNNING"
        assert holds(cluster, NODE, works(long))
        assert cluster.job_state(queued) == "PENDING"

    jobs = [before, short, long, queued]
    cluster.wait_for_rows(jobs)
    listed = ",".join(map(str, jobs))
    # one row each: none was started a second time
    rows = cluster.user(CONTROLLER, f"sacct -nX -P --duplicates -o jobid,state -j {listed}").split()
    assert sorted(rows) == sorted(f"{job}|COMPLETED" for job in jobs)
    cluster.wait_for_state("idle")
    # the daemon that sends logs ends while their host is away; a deploy looks at what restarted in the last minute
    wait_until("logs are sent", lambda: holds(cluster, NODE, SENT_FOR_A_MINUTE), cluster.patience_s)
    assert_heals(cluster)

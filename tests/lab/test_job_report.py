"""Two real jobs on one node: what each used is reported apart, while they run and after their end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from deepopsctl.node_programs.commands.job_report.keeping import SHORTEST_S
from tests.lab.harness import wait_until
from tests.lab.monitored import MonitoredCluster

MIB = 1 << 20
# one holds 200 MiB and computes, the other holds next to nothing and sleeps; both end on request
BUSY = """#!/bin/sh
#SBATCH --job-name=busy --mem=600M --gpus=1 --time=30 --nodelist=gpu01 --output=busy.out
echo begins
python3 -c 'import os; held = bytearray(200 << 20)
while not os.path.exists("stop"): pass'
"""
IDLE = """#!/bin/sh
#SBATCH --job-name=idle --mem=300M --gpus=1 --time=30 --nodelist=gpu01 --output=idle.out
while [ ! -e stop ]; do sleep 1; done
"""
# what root is to write to at its end is something else by then: a link to a file of root's, a pipe that is not read
HOSTILE = """#!/bin/sh
#SBATCH --mem=50M --time=30 --nodelist=gpu01 --array=0-1 --output=hostile-%a.out
while [ ! -e stop-hostile ]; do sleep 1; done
cd; own=hostile-$SLURM_ARRAY_TASK_ID.out; rm $own
[ $SLURM_ARRAY_TASK_ID = 1 ] && mkfifo $own || ln /srv/of-root $own || ln -s /srv/of-root $own
"""
METRICS = "/var/lib/prometheus/node-exporter/nodemetrics-jobs.prom"


@dataclass(frozen=True)
class Jobs:
    """Numbers of the two jobs, and the cluster that they are on."""

    cluster: MonitoredCluster
    busy: str
    idle: str

    def report(self, number: str) -> dict[str, Any]:
        """The report that its user gets."""
        (report,) = json.loads(self.cluster.user("ctl1", f"job-report {number} --json"))["jobs"]
        return dict(report)

    def series(self, name: str, number: str) -> list[dict[str, Any]]:
        """What Prometheus has of one job."""
        return self.cluster.wait_for(f'{name}{{jobid="{number}"}}')

    def how_many(self, state: str) -> int:
        """Of both, those that Slurm has in a state, or in any where it is empty."""
        listed = self.cluster.root("ctl1", f"squeue -h -o %A {state}").split()
        return len({self.busy, self.idle} & set(listed))

    def elapsed_s(self) -> int:
        """How long the younger one runs."""
        shown = self.cluster.root("ctl1", f"sacct -n -X -j {self.idle} -o ElapsedRaw")
        return int(shown.strip() or 0)

    def end(self) -> None:
        """Have both end, and wait for it."""
        # a shorter job gets no summary
        wait_until("both jobs are long enough", lambda: self.elapsed_s() > SHORTEST_S + 2)
        self.cluster.user("gpu01", "touch stop")
        wait_until("both jobs have ended", lambda: self.how_many("") == 0)


@pytest.fixture(scope="module")
def jobs(monitored: MonitoredCluster) -> Iterator[Jobs]:
    """The two jobs, of which both run."""
    monitored.user("gpu01", "rm -f stop")
    numbers = []
    for script in (BUSY, IDLE):
        # to the node where the output goes: homes are not shared here
        submit = f"cat > job.sh <<'END'\n{script}END\nsbatch --parsable job.sh"
        numbers.append(monitored.user("gpu01", submit).strip())
    submitted = Jobs(monitored, *numbers)
    squeue = "squeue; sinfo"
    wait_until("both jobs run", lambda: submitted.how_many("-t R") == 2, details=lambda: monitored.root("ctl1", squeue))
    yield submitted
    submitted.end()


@pytest.mark.every_change
def test_a_job_has_root_write_to_no_file_but_its_own(monitored: MonitoredCluster) -> None:
    cluster = monitored
    cluster.root("gpu01", "echo precious >/srv/of-root; rm -f ~ubuntu/stop-hostile ~ubuntu/hostile-*")
    cluster.user("gpu01", f"cat > hostile.sh <<'END'\n{HOSTILE}END\nsbatch hostile.sh")
    seen = f"grep -c '^deepops_job_memory_peak_bytes' {METRICS}"
    wait_until("there is something to write", lambda: cluster.root("gpu01", seen, ok=False) == "2")
    cluster.user("gpu01", "touch stop-hostile")
    wait_until("both have ended", lambda: cluster.root("ctl1", "squeue -h") == "")

    assert cluster.root("gpu01", "cat /srv/of-root; stat -c '%U %a' /srv/of-root").split() == [
        "precious",
        "root",
        "644",
    ]
    assert "longer than" not in cluster.root("gpu01", "journalctl -b -t deepopsctl-epilog --no-pager")
    cluster.root("gpu01", "rm -f /srv/of-root ~ubuntu/hostile-* ~ubuntu/stop-hostile")


def test_each_gpu_of_the_node_has_its_own_job(jobs: Jobs) -> None:
    def measured_jobs() -> list[str]:
        # a job counts as running while its prolog still does
        lines = jobs.cluster.root("gpu01", "grep -H . /run/deepops/gpus/*", ok=False).splitlines()
        return sorted(line.rpartition(":")[2] for line in lines)

    wait_until(
        "the prologs have written their jobs",
        lambda: measured_jobs() == sorted([jobs.busy, jobs.idle]),
        details=lambda: str(measured_jobs()),
    )
    assert jobs.cluster.root("gpu01", "ls /run/deepops/gpus").split() == ["0", "1"]


def test_prometheus_has_two_jobs_on_one_node_apart(jobs: Jobs) -> None:
    jobs.cluster.wait_for(f'job:memory_used:bytes{{jobid="{jobs.busy}"}} > {150 * MIB}')
    (busy,), (idle,) = (jobs.series("job:memory_used:bytes", number) for number in (jobs.busy, jobs.idle))

    labels = {key: busy["metric"][key] for key in ("node", "user", "account", "partition")}
    assert labels == {"node": "gpu01", "user": "ubuntu", "account": "default", "partition": "gpu"}
    assert 200 * MIB < float(busy["value"][1]) < 300 * MIB
    assert float(idle["value"][1]) < 50 * MIB
    for number, asked in ((jobs.busy, 600), (jobs.idle, 300)):
        (requested,) = jobs.series("deepops_job_memory_requested_bytes", number)
        assert float(requested["value"][1]) == asked * MIB
    gpus = [jobs.series("deepops_job_gpu", number)[0]["metric"]["gpu"] for number in (jobs.busy, jobs.idle)]
    assert sorted(gpus) == ["0", "1"]


def test_prometheus_knows_who_computes(jobs: Jobs) -> None:
    at_least = f'job:cpu_used:cores{{jobid="{jobs.busy}"}} > 0.05'
    (busy,) = jobs.cluster.wait_for(at_least)
    (idle,) = jobs.series("job:cpu_used:cores", jobs.idle)

    assert float(busy["value"][1]) <= 1.1
    assert float(idle["value"][1]) < 0.05


def test_the_report_of_a_running_job_has_what_it_uses(jobs: Jobs) -> None:
    def held() -> float:
        return float((jobs.report(jobs.busy)["memory"] or {"used": 0})["used"])

    wait_until("slurmd has looked", lambda: held() > 150 * MIB, details=lambda: str(jobs.report(jobs.busy)))
    report = jobs.report(jobs.busy)

    assert report["running"]
    assert report["memory"]["asked"] == 600 * MIB
    assert report["cpu"]["asked"] == 1
    assert report["time"]["asked"] == 1800


class TestAfterTheEnd:
    """In this order: the jobs end with the first."""

    def test_each_job_ends_with_its_own_use_in_its_own_output(self, jobs: Jobs) -> None:
        jobs.end()
        # a user's: a summary must not replace it
        jobs.cluster.root("ctl1", f"sacctmgr -i modify job where jobid={jobs.idle} set AdminComment='kept by hand'")
        busy, idle = (jobs.cluster.user("gpu01", f"cat {name}.out") for name in ("busy", "idle"))

        assert busy.startswith("begins\n")
        assert f"---- job {jobs.busy} on gpu01: " in busy
        assert f"---- job {jobs.idle} on gpu01: " in idle
        assert "of 600 MiB (3" in busy
        assert "of 300 MiB (" in idle
        assert jobs.cluster.root("gpu01", "stat -c %U ~ubuntu/busy.out") == "ubuntu"

    def test_nothing_of_them_is_left_on_the_node(self, jobs: Jobs) -> None:
        left = jobs.cluster.root("gpu01", "ls -A /run/deepops/jobs; cat /run/deepops/gpus/* 2>/dev/null; true").split()

        assert not {jobs.busy, jobs.idle} & set(left)

    def test_the_report_has_what_they_used(self, jobs: Jobs) -> None:
        busy, idle = jobs.report(jobs.busy), jobs.report(jobs.idle)

        assert (busy["state"], idle["state"]) == ("COMPLETED", "COMPLETED")
        assert 200 * MIB < busy["memory"]["used"] < 300 * MIB
        assert idle["memory"]["used"] < 50 * MIB
        assert busy["cpu"]["used"] > 10 * idle["cpu"]["used"]
        assert "Memory" in jobs.cluster.user("gpu01", f"job-report {jobs.busy}")

    def test_a_summary_is_saved_and_no_comment_of_others_is_lost(self, jobs: Jobs) -> None:
        wait_until(
            "the summary is saved",
            lambda: jobs.report(jobs.busy)["per_node"],
            details=lambda: jobs.cluster.root("ctl1", "journalctl -u deepops-job-summaries --no-pager | tail -5"),
        )
        (node,) = jobs.report(jobs.busy)["per_node"]

        assert node["node"] == "gpu01"
        assert 200 * MIB < node["memory"] < 300 * MIB
        comment = f"sacct -X -n -P -j {jobs.idle} -o AdminComment"
        assert jobs.cluster.root("ctl1", comment) == "kept by hand"

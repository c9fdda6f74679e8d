"""What Prometheus has of a real Slurm: its jobs, its nodes, and nothing old of one that is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.data.slurm_metrics_samples import samples
from tests.lab.harness import wait_until
from tests.lab.hostile import NAMES, waiting_jobs
from tests.lab.monitored import MonitoredCluster

UNIT = "deepops-slurmmetrics.service"
FILE = "/var/lib/prometheus/node-exporter/slurmmetrics.prom"
REASON = 'disk "sda" | see ticket=4711 \\ {x}'


def fresh_metrics(cluster: MonitoredCluster) -> str:
    """Metrics of a new query of Slurm: the unit is up when it has done one."""
    cluster.root("ctl1", f"systemctl restart {UNIT}")
    return cluster.root("ctl1", f"cat {FILE}")


@pytest.fixture
def busy(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """The cluster with one job that has a GPU of gpu01's two, and two tasks of an array that wait for both."""
    submit = "sbatch --parsable --output=/dev/null --nodelist=gpu01 --mem=10M"
    running = monitored.user("ctl1", f"{submit} --gres=gpu:a100:1 --wrap 'sleep 600'")
    monitored.user("ctl1", f"{submit} --gres=gpu:a100:2 --array=1-2 --wrap true")
    state = f"squeue --noheader --format=%T --jobs={running}"
    wait_until("the job runs", lambda: monitored.user("ctl1", state) == "RUNNING")
    yield monitored
    monitored.root("ctl1", "scancel --state=PENDING; scancel --state=RUNNING")
    monitored.root("ctl1", "scontrol update nodename=gpu01 state=resume", ok=False)


def test_prometheus_has_jobs_by_their_owner(busy: MonitoredCluster) -> None:
    busy.root("ctl1", f"scontrol update nodename=gpu01 state=drain reason='{REASON}'")

    values = samples(fresh_metrics(busy))

    partition = busy.root("ctl1", "sinfo --noheader --format=%R")
    who = f'partition="{partition}",account="default",user="ubuntu"'
    assert values[f'deepops_slurm_jobs{{state="running",{who}}}'] == 1
    assert values[f'deepops_slurm_jobs{{state="pending",{who}}}'] == 2
    assert values[f'deepops_slurm_gpus_allocated{{gpu_type="a100",{who}}}'] == 1
    assert values[f'deepops_slurm_gpus_pending{{gpu_type="a100",{who}}}'] == 4
    assert values[f"deepops_slurm_memory_allocated_bytes{{{who}}}"] == 10 << 20
    assert values['deepops_slurm_node_state{node="gpu01",state="drain"}'] == 1
    assert any(r'reason="disk \"sda\" | see ticket=4711 \\ {x}"' in name for name in values)
    assert values["slurm_jobs_gpus_alloc"] == values['slurm_node_gpus_alloc{node="gpu01"}'] == 1
    assert values["deepops_slurm_up"] == values["deepops_slurmdbd_up"] == 1

    # and so does Prometheus: the node's own name stays alongside that of the controller, which exports it
    sample = busy.wait_for('deepops_slurm_node_drain{node="gpu01"}')[0]["metric"]
    assert (sample["reason"], sample["instance"], sample["by"]) == (REASON, "ctl1", "root")
    assert busy.query('slurm_node_gpus{node="gpu01"}')[0]["value"][1] == "2"
    assert busy.query('node_textfile_scrape_error{node="ctl1"}')[0]["value"][1] == "0"


def test_no_name_of_a_job_forges_a_sample_or_a_line_of_its_report(monitored: MonitoredCluster) -> None:
    with waiting_jobs(monitored) as numbers:
        text = fresh_metrics(monitored)
        reports = [monitored.user("ctl1", f"job-report {number}") for number in numbers]

    values = samples(text)
    assert values["deepops_slurm_up"] == 1
    assert values["deepops_slurm_unreadable_records"] == 0
    assert sum(values[name] for name in values if name.startswith('deepops_slurm_jobs{state="pending"')) == len(NAMES)
    for number, report in zip(numbers, reports, strict=True):
        assert report.startswith(f"Job {number}  ")
        assert report.count("Job ") == 1
        assert report.replace("\n", "").isprintable()


def test_the_program_reaches_nothing_but_slurms_answers(monitored: MonitoredCluster) -> None:
    main = monitored.root("ctl1", f"systemctl show --property=MainPID --value {UNIT}")
    slurm = "setpriv --reuid=slurm --regid=slurm --clear-groups"
    inside = f"nsenter --target {main} --mount -- {slurm}"

    assert monitored.root("ctl1", f"stat --format=%U /proc/{main}") == "slurm"
    for path in ("/var/lib/slurm/slurmctld", "/etc/slurm/slurmdbd.conf"):
        # Slurm's user may, this program may not
        assert monitored.holds("ctl1", f"{slurm} test -r {path}")
        assert not monitored.holds("ctl1", f"{inside} test -r {path}")
    assert monitored.holds("ctl1", f"{slurm} test -w /var/log/slurm")
    assert not monitored.holds("ctl1", f"{inside} test -w /var/log/slurm")
    # what is killed leaves nothing, and comes back by itself
    monitored.root("ctl1", f"kill -9 {main}")
    wait_until("its file is gone", lambda: not monitored.holds("ctl1", f"test -e {FILE}"))
    wait_until("it is back", lambda: monitored.holds("ctl1", f"test -e {FILE}"))

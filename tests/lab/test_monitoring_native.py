"""Slurm 26.05's own metrics: a real slurmctld of Debian sid tells them, and our Prometheus reads them there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deepopsctl.slurmnative import PAGES
from tests.lab.harness import PREFIX, SETTINGS, edit, fresh_cluster, lab_down, wait_until
from tests.lab.monitored import MonitoredCluster
from tests.lab.smoke import validate

pytestmark = pytest.mark.thorough

OURS = "/var/lib/prometheus/node-exporter/slurmmetrics.prom"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    """One machine for everything."""
    name = f"{PREFIX}-native"
    try:
        made = fresh_cluster(
            name, tmp_path_factory.mktemp(name), "--single", "--gpus", "a100:2", "--monitoring", os="sid"
        )
        edit(made.directory / SETTINGS, "---\n", "---\nmonitoring_slurm_native: true\n")
        found = MonitoredCluster(made.name, made.os, made.directory, made.node_list, made.password_file)
        found.deploy()
        yield found
    finally:
        lab_down(name)


def pages_up(cluster: MonitoredCluster) -> set[str]:
    return {sample["metric"]["page"] for sample in cluster.query('up{job="slurm"} == 1')}


def test_every_page_of_slurmctld_is_scraped(cluster: MonitoredCluster) -> None:
    wait_until("all pages are up", lambda: pages_up(cluster) == set(PAGES), found=lambda: str(cluster.down()))


def test_the_names_are_slurmctlds_own_and_come_once(cluster: MonitoredCluster) -> None:
    job = cluster.submit("sleep 300", "--gres=gpu:a100:1", "--mem=10M")
    cluster.wait_for_job(job, "RUNNING")
    assert cluster.wait_for("slurm_jobs_running == 1")

    jobs = {sample["metric"]["job"] for sample in cluster.query('{__name__=~"slurm_.+"}')}
    assert jobs == {"slurm"}
    told = cluster.root("ctl1", f"cat {OURS}")
    assert "\ndeepops_slurm_up 1" in told
    assert "\nslurm_" not in told
    cluster.user("ctl1", f"scancel {job}")


def test_the_cluster_passes_its_validation_and_a_second_deploy_changes_nothing(cluster: MonitoredCluster) -> None:
    cluster.wait_until_idle()
    cluster.wait_until_up()

    result = validate(cluster, suite="monitoring")

    assert result.failed() == set(), result.shown
    assert result.code == 0, result.shown
    assert cluster.deploy()["changes"] == []

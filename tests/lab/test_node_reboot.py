"""Nodes reboot when their jobs have ended, and take jobs again when they passed their validation.

slurmctld, its states, systemd's reboot and the validation are real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import LabCluster, wait_until
from tests.lab.reboots import mark, rebootable, rebooted

NODES = ("gpu01", "gpu02")


@pytest.fixture(scope="module")
def cluster(battered: LabCluster) -> Iterator[LabCluster]:
    """Two nodes that can reboot."""
    with rebootable(battered, NODES):
        yield battered
    battered.deploy()


def reboot(cluster: LabCluster, *words: str, code: int = 0) -> dict[str, Any]:
    """`node reboot --yes --json`; its object."""
    done = cluster.deepopsctl("node", "reboot", *words, "--yes", "--json", ok=False)
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def states(cluster: LabCluster) -> list[str]:
    return cluster.root("ctl1", "sinfo --noheader --Node --format '%T %E' | sort -u").splitlines()


@pytest.fixture(autouse=True)
def marked(cluster: LabCluster) -> None:
    mark(cluster, NODES)


@pytest.mark.timeout(1800)
def test_a_node_reboots_after_its_job_and_the_next_one_when_it_is_back(cluster: LabCluster) -> None:
    # a second node beside one with a job, which may not be down with the other
    job = cluster.submit("sleep 20", "--nodelist=gpu01", "--mem=100M", "--time=5")
    cluster.wait_for_job(job, "RUNNING")

    report = reboot(cluster, "gpu[01-02]", "--wait", "--max-down", "1", "--reason", "new 'kernel'")

    assert report["ok"]
    assert rebooted(cluster, NODES) == [*NODES]
    assert cluster.job_state(job) == "COMPLETED"
    assert states(cluster) == ["idle none"]
    assert {check["status"] for check in report["checks"]} <= {"pass", "skip", "warn"}
    assert cluster.root("ctl1", "scontrol show reservation").startswith("No reservations")


@pytest.mark.timeout(1800)
def test_a_drain_outlives_the_reboot_and_one_of_another_person_prevents_it(cluster: LabCluster) -> None:
    cluster.root("ctl1", "scontrol update nodename=gpu01 state=drain reason='bad DIMM'")
    cluster.deepopsctl("node", "drain", "gpu02", "--reason", "fan")

    report = reboot(cluster, "gpu[01-02]", code=1)

    assert "gpu01: drained by root" in report["stopped"]["message"]
    assert rebooted(cluster, NODES) == ["gpu02"]
    wait_until("gpu02 has registered", lambda: states(cluster) == ["drained bad DIMM", "drained deepopsctl: fan"])
    cluster.root("ctl1", "scontrol update nodename=gpu[01-02] state=resume")


def test_slurm_is_not_asked_where_it_would_set_the_nodes_down(cluster: LabCluster) -> None:
    cluster.deploy("slurm", "-e", '{"slurm_config": {"ResumeTimeout": 60}}', "--limit", "ctl1")

    report = reboot(cluster, "gpu01", code=1)

    assert any("ResumeTimeout is 60 sec" in failure["message"] for failure in report["failures"])
    assert rebooted(cluster, NODES) == []
    assert states(cluster) == ["idle none"]

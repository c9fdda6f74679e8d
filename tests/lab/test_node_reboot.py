"""Nodes reboot when their jobs have ended, and take jobs again when they passed their validation.

slurmctld, its states, systemd's reboot and the validation are real. Containers share the boot time and the boot id of
their host, so slurmd reports each of its starts as a boot (`slurmd -b`), and a node gets its own boot id at each start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.lab.harness import LabCluster, powered, wait_until
from tests.lab.nvidia_stubs import write

NODES = ("gpu01", "gpu02")
# on a file system in memory: away after a reboot
MARK = "/run/before-the-reboot"
MACHINE = """#!/bin/sh
cat /proc/sys/kernel/random/uuid > /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
"""
UNIT = """[Unit]
Before=ssh.service slurmd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/machine
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def cluster(battered: LabCluster) -> Iterator[LabCluster]:
    """Two nodes that can reboot."""
    with ExitStack() as stack:
        for node in NODES:
            write(battered, node, "/usr/local/sbin/machine", MACHINE, "0755")
            write(battered, node, "/etc/systemd/system/machine.service", UNIT)
            battered.root(node, "systemctl enable --now --quiet machine")
            battered.root(node, """sed -i 's/^SLURMD_OPTIONS="/&-b /' /etc/default/slurmd""")
            stack.enter_context(powered(f"{battered.name}-{node}"))
        yield battered
        for node in NODES:
            battered.root(node, "systemctl disable --quiet machine")
        battered.deploy()


def reboot(cluster: LabCluster, *words: str, code: int = 0) -> dict[str, Any]:
    """`node reboot --yes --json`; its object."""
    done = cluster.deepopsctl("node", "reboot", *words, "--yes", "--json", ok=False)
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def rebooted(cluster: LabCluster) -> list[str]:
    """The nodes that rebooted since they were marked."""
    return [node for node in NODES if not cluster.holds(node, f"test -e {MARK}")]


def states(cluster: LabCluster) -> list[str]:
    return cluster.root("ctl1", "sinfo --noheader --Node --format '%T %E' | sort -u").splitlines()


@pytest.fixture(autouse=True)
def marked(cluster: LabCluster) -> None:
    for node in NODES:
        cluster.root(node, f"touch {MARK}")


@pytest.mark.timeout(1800)
def test_a_node_reboots_after_its_job_and_the_next_one_when_it_is_back(cluster: LabCluster) -> None:
    # a second node beside one with a job, which may not be down with the other
    job = cluster.submit("sleep 20", "--nodelist=gpu01", "--mem=100M", "--time=5")
    cluster.wait_for_job(job, "RUNNING")

    report = reboot(cluster, "gpu[01-02]", "--wait", "--max-down", "1", "--reason", "new 'kernel'")

    assert report["ok"]
    assert rebooted(cluster) == [*NODES]
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
    assert rebooted(cluster) == ["gpu02"]
    wait_until("gpu02 has registered", lambda: states(cluster) == ["drained bad DIMM", "drained deepopsctl: fan"])
    cluster.root("ctl1", "scontrol update nodename=gpu[01-02] state=resume")


def test_slurm_is_not_asked_where_it_would_set_the_nodes_down(cluster: LabCluster) -> None:
    cluster.deploy("slurm", "-e", '{"slurm_config": {"ResumeTimeout": 60}}', "--limit", "ctl1")

    report = reboot(cluster, "gpu01", code=1)

    assert any("ResumeTimeout is 60 sec" in failure["message"] for failure in report["failures"])
    assert rebooted(cluster) == []
    assert states(cluster) == ["idle none"]

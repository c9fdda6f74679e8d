"""Slurm 24.11 to 26.05 on real daemons, under jobs, with kills between, a node that is off, and a way back.

The packages of 26.05 are the binaries of Debian's sid, fetched by this machine's apt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.faults import killed_when
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, command, edit, fresh_cluster, wait_until
from tests.support.suite import Suite

NAME = f"{PREFIX}-upgrade"
# Debian builds 26.05 without PMIx
WITHOUT = ("--without", "mpi_pmix")
# settings.yml: without it the upgrade is refused, as no srun would start afterwards
NO_MPI = "slurm_config: {MpiDefault: none}\n"
UPGRADE = ("upgrade", "slurm", "--to", "26.05", "--yes", "--batch", "2", *WITHOUT)
RECORD = "/var/lib/deepopsctl/upgrade/slurm.json"
# settings.yml of a cluster that begins with it
ON = "slurm_install: repository\nslurm_release: '26.05'\n"
# Slurm 26.05, and the libraries that it needs in a later version than Debian 13 has
PACKAGES = (
    "slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin",
    "libslurm45t64", "libpam-slurm-adopt", "libhwloc15", "libhwloc-plugins", "libllhttp9.4", "libxml2-16", "libze1",
)  # fmt: skip
# with this, slurmctld 26.05 does not start
OBSTACLE = "/etc/systemd/system/slurmctld.service.d/obstacle.conf"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """24.11 is deployed, and 26.05 is in the cluster's repository."""
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "4") as made:
        edit(made.directory / SETTINGS, "---\n", f"---\n{NO_MPI}")
        made.deploy()
        add_new_release(made, tmp_path_factory.mktemp("sid"))
        yield made


def add_new_release(cluster: LabCluster, directory: Path, *more: str) -> None:
    files = Suite("sid", directory).download(*PACKAGES, *more)
    cluster.deepopsctl("packages", "add", "slurm", "--for", "debian13", *map(str, files))


def version(cluster: LabCluster) -> str:
    """What slurmctld says of itself."""
    return cluster.root("ctl1", "scontrol show config | sed -n 's/^SLURM_VERSION *= *//p'")


def record(cluster: LabCluster) -> dict[str, Any]:
    text = cluster.root("ctl1", f"cat {RECORD}", ok=False)
    document: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
    return document


def history(cluster: LabCluster, fields: str) -> list[str]:
    """All that accounting has of jobs and steps that have ended."""
    shown = cluster.root("ctl1", f"sacct -anP --noconvert -o {fields}")
    return [line for line in shown.splitlines() if "|RUNNING|" not in line and "|PENDING|" not in line]


@pytest.fixture(scope="module")
def jobs(cluster: LabCluster) -> dict[str, int]:
    """Jobs that have ended, run, wait, and start a step later."""
    done = cluster.submit("srun hostname", "--wait")
    assert cluster.job_state(done) == "COMPLETED"
    runs = cluster.submit("sleep 100000", "--nodelist=cn01", "-n1")
    steps = cluster.submit("while [ ! -e go ]; do sleep 1; done; srun hostname > step.out", "--nodelist=cn02", "-n1")
    after = cluster.submit("hostname", f"--dependency=afterany:{runs}", "--array=1-4%2")
    for job in (runs, steps):
        cluster.wait_for_job(job, "RUNNING")
    return {"done": done, "runs": runs, "steps": steps, "after": after}


def test_a_plan_changes_nothing(cluster: LabCluster, jobs: dict[str, int]) -> None:
    refused = cluster.deepopsctl("upgrade", "slurm", "--to", "26.05", "--check", ok=False)
    assert refused.returncode == 1
    assert "lack mpi_pmix: MPI programs start by PMIx" in refused.stdout + refused.stderr
    plan = cluster.parsed("upgrade", "slurm", "--to", "26.05", "--check", "--batch", "2", *WITHOUT)

    assert (plan["from"], plan["to"], plan["version"], plan["refusals"]) == ("24.11", "26.05", "26.05.5", [])
    assert (plan["controllers"], plan["batches"]) == (["ctl1"], [["cn01", "cn02"], ["cn03", "cn04"]])
    assert {int(job["id"]) for job in plan["jobs"]} == {jobs["runs"], jobs["steps"]}
    assert version(cluster).startswith("24.11")
    assert record(cluster) == {}
    assert not cluster.holds("cn01", "test -e /etc/apt/sources.list.d/deepopsctl-packages.sources")


def test_a_slurmctld_that_does_not_start_is_undone(cluster: LabCluster, jobs: dict[str, int]) -> None:
    fields = cluster.root("ctl1", "sacct -e | xargs | tr ' ' ','")
    before = history(cluster, fields)
    packages = cluster.root("ctl1", "dpkg-query -W '*slurm*'")
    cluster.root(
        "ctl1",
        f"printf '[Service]\\nExecStartPre=/bin/sh -c \"! slurmctld -V | grep -q 26.05\"\\n' > {OBSTACLE}"
        " && systemctl daemon-reload",
    )
    try:
        failed = cluster.deepopsctl(*UPGRADE, "--json", ok=False)
    finally:
        cluster.root("ctl1", f"rm {OBSTACLE} && systemctl daemon-reload")

    assert failed.returncode == 1
    assert "24.11 runs again as before" in json.loads(failed.stdout)["stopped"]["message"]
    assert version(cluster).startswith("24.11")
    assert record(cluster) == {}
    for job in ("runs", "steps"):
        assert cluster.job_state(jobs[job]) == "RUNNING"
    assert history(cluster, fields) == before
    assert cluster.root("ctl1", "dpkg-query -W '*slurm*' | grep -v libslurm45") == packages
    assert set(cluster.changed(cluster.deploy()).values()) == {0}


@pytest.mark.timeout(5400)
def test_jobs_and_accounting_survive_an_upgrade_that_is_killed_twice(cluster: LabCluster, jobs: dict[str, int]) -> None:
    fields = cluster.root("ctl1", "sacct -e | xargs | tr ' ' ','")
    before = history(cluster, fields)
    pid = cluster.root("cn01", "pgrep -f 'sleep 100000' -o")
    cluster.power_cut("cn04")

    killed_when(cluster, UPGRADE, f"grep -q controller {RECORD} && ! systemctl --quiet is-active slurmctld")
    refused = cluster.deepopsctl("deploy", "slurm", ok=False)
    assert refused.returncode == 1
    assert "an upgrade of Slurm from 24.11 to 26.05 is under way" in refused.stderr
    killed_when(cluster, UPGRADE, f"grep -q '\"nodes\"' {RECORD} && sinfo -hN -O Version | grep -q 26.05")
    findings = cluster.deepopsctl("status", "--json", ok=False).stdout
    assert "an upgrade of Slurm from 24.11 to 26.05 is under way" in findings
    ended = cluster.deepopsctl(*UPGRADE, "--json", ok=False)

    document = json.loads(ended.stdout)
    assert (ended.returncode, document.get("stopped")) == (4, None), ended.stderr
    assert any(warning.startswith("cn04 is left out") for warning in document["warnings"])
    assert version(cluster) == "26.05.5"
    assert record(cluster) == {}
    assert not cluster.holds("ctl1", "test -e /usr/sbin/policy-rc.d")
    assert cluster.job_state(jobs["runs"]) == "RUNNING"
    assert cluster.root("cn01", "pgrep -f 'sleep 100000' -o") == pid
    after = history(cluster, fields)
    assert [line for line in before if line not in after] == []

    # a step of a job from before, and an array that waited all the time
    cluster.user("cn02", "touch go")
    cluster.wait_for_job(jobs["steps"], "COMPLETED")
    assert cluster.user("cn02", "cat step.out") == "cn02"
    cluster.root("ctl1", f"scancel {jobs['runs']}")
    wait_until(
        "the array has run",
        lambda: cluster.root("ctl1", f"sacct -nXP -o state -j {jobs['after']}").split() == ["COMPLETED"] * 4,
        details=lambda: cluster.root("ctl1", "squeue; sinfo"),
    )


def test_a_node_that_was_off_comes_by_the_same_command(cluster: LabCluster, jobs: dict[str, int]) -> None:
    cluster.power_on("cn04")
    wait_until(
        "cn04 answers", lambda: cluster.holds("cn04", "systemctl is-system-running | grep -Eq 'running|degraded'")
    )

    document = cluster.parsed(*UPGRADE, "--drain")

    assert document["nodes"] == ["cn04"]
    assert cluster.node_state("cn04") == "idle"
    assert set(cluster.root("ctl1", "sinfo -hN -O Version").split()) == {"26.05.5"}
    assert set(cluster.changed(cluster.deploy()).values()) == {0}
    assert command("-C", str(cluster.directory), "validate", "smoke").returncode == 0

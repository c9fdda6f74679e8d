"""The smoke suite on real clusters: it passes on a good one, and every check fails on the damage it is there for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from deepopsctl.report.catalogue import CATALOGUE
from tests.lab.harness import LabCluster
from tests.lab.smoke_damages import CLUSTER, COMPUTE, DAMAGES, Damage, both, conf_steps

LONG_JOB, QUIET = "sleep 600", ("--mem=100M", "--time=20", "--output=/dev/null")
# checks that only exist when something is wrong
ONLY_FAILURES = {"reachable", "suite-ran"}
# one restart of everything that reads slurm.conf; the nodes fetch their copy from the controller
RESTART = "systemctl restart slurmctld && for i in $(seq 50); do scontrol ping | grep -q UP && exit 0; sleep 0.2; done"


@dataclass(frozen=True)
class Result:
    """One call of `validate --json`."""

    code: int
    checks: dict[tuple[str, str], dict[str, str]]
    elapsed_s: float
    shown: str
    run: str

    def failed(self) -> set[tuple[str, str]]:
        """(check, target) of everything that failed."""
        return {key for key, check in self.checks.items() if check["status"] == "fail"}

    def message(self, name: str, target: str) -> str:
        """The message of one check."""
        return self.checks[name, target]["message"]


def validate(cluster: LabCluster, *arguments: str, directory: Path | None = None) -> Result:
    """Validate, whatever comes of it."""
    started = time.monotonic()
    where = cluster if directory is None else LabCluster(cluster.name, cluster.os, directory, Path(), Path())
    done = where.deepopsctl("validate", "smoke", "--json", *arguments, ok=False)
    document: dict[str, Any] = json.loads(done.stdout)
    checks = {(check["name"], check["target"]): check for check in document["checks"]}
    return Result(done.returncode, checks, time.monotonic() - started, done.stderr, document["run"])


@pytest.fixture(scope="module")
def deployed(cluster: LabCluster) -> LabCluster:
    """A cluster with Slurm on it, its partition limited to two hours, so that more can be asked for."""
    spec, settings = cluster.directory / "cluster.yml", cluster.directory / "inventory/group_vars/all/settings.yml"
    spec.write_text(spec.read_text().replace("default: true", 'default: true, max_time: "02:00:00"'))
    kept = [line for line in settings.read_text().splitlines() if not line.startswith("slurm_config:")]
    settings.write_text("\n".join([*kept, "slurm_config: {EnforcePartLimits: ALL}", ""]))
    cluster.deploy()
    return cluster


@contextmanager
def damaged(cluster: LabCluster, *steps: tuple[str, str, str]) -> Iterator[None]:
    """Apply (node, damage, repair) steps and undo them in reverse, whatever happens."""
    done: list[tuple[str, str]] = []
    try:
        for node, damage, repair in steps:
            done.append((node, repair))
            cluster.root(node, damage)
        yield
    finally:
        for node, repair in reversed(done):
            cluster.root(node, repair)
        wait_until_idle(cluster)


def wait_until_idle(cluster: LabCluster, seconds: int = 60) -> None:
    """All compute nodes answer and have no jobs."""
    until = time.monotonic() + seconds
    while set(cluster.root("ctl1", "sinfo -h -N -o %t", ok=False).split()) != {"idle"}:
        assert time.monotonic() < until, cluster.root("ctl1", "sinfo -N; squeue", ok=False)
        time.sleep(0.5)


def leftovers(cluster: LabCluster) -> str:
    """Jobs of the suite that are still there, and files it forgot."""
    jobs = cluster.root("ctl1", "squeue -h -o %j | grep deepopsctl-smoke; exit 0")
    files = [
        cluster.root(node, "ls -d ~ubuntu/deepopsctl-smoke* ~ubuntu/slurm-*.out 2>/dev/null; exit 0")
        for node in ("ctl1", *COMPUTE)
    ]
    return "".join([jobs, *files])


def test_a_healthy_cluster_passes_every_check_in_half_a_minute(deployed: LabCluster, tmp_path: Path) -> None:
    junit, html = tmp_path / "smoke.xml", tmp_path / "smoke.html"

    result = validate(deployed, "--junit", str(junit), "--html", str(html))

    assert result.code == 0, result.shown
    assert {check["status"] for check in result.checks.values()} == {"pass"}, result.shown
    assert {name for name, _target in result.checks} == set(CATALOGUE) - ONLY_FAILURES
    assert result.elapsed_s < 30
    assert leftovers(deployed) == ""
    suite = ET.fromstring(junit.read_text()).find("testsuite")  # noqa: S314 (our own file)
    assert suite is not None
    assert suite.get("tests") == str(len(result.checks))
    assert "gpu02" in html.read_text()
    folder = deployed.directory / "runs" / result.run
    assert json.loads((folder / "checks.json").read_text())["ok"] is True
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.id)
def test_damage_is_found_and_named(deployed: LabCluster, damage: Damage) -> None:
    def here(key: tuple[str, str]) -> tuple[str, str]:
        return key[0], key[1].replace(CLUSTER, deployed.name)

    with damaged(deployed, *damage.steps):
        result = validate(deployed)

    assert result.code == 1, result.shown
    assert {here(key) for key in damage.found} <= result.failed(), result.shown
    assert not {here(key) for key in damage.untouched} & result.failed(), result.shown
    for key, text in damage.messages.items():
        assert text in result.message(*here(key))
    assert result.elapsed_s < 90
    assert leftovers(deployed) == ""


def copied(cluster: LabCluster, folder: Path, *edits: tuple[str, str, str]) -> Path:
    """The cluster's directory, with (file, old, new) edits: what people believe about the machines."""
    made = folder / "copy"
    shutil.copytree(cluster.directory, made, ignore=shutil.ignore_patterns("runs"))
    for name, old, new in edits:
        path = made / name
        assert old in path.read_text(), f"{name} has no {old}"
        path.write_text(path.read_text().replace(old, new))
    return made


def test_nodes_that_differ_from_what_was_declared_are_named(deployed: LabCluster, tmp_path: Path) -> None:
    hardware = (deployed.directory / "hardware.yml").read_text()
    cpus, memory = re.search(r"cpus: \d+", hardware), re.search(r"memory_mb: \d+", hardware)
    assert cpus
    assert memory
    directory = copied(
        deployed,
        tmp_path,
        ("hardware.yml", cpus[0], "cpus: 96"),
        ("hardware.yml", memory[0], "memory_mb: 4096"),
        ("cluster.yml", "count: 2", "count: 4"),
        ("cluster.yml", "partitions:\n", 'partitions:\n  - {name: night, nodes: "gpu01"}\n'),
    )

    result = validate(deployed, directory=directory)

    assert result.code == 1
    assert both("node-cpus") | both("node-memory") | both("node-gpus") <= result.failed()
    assert ("partition", "night") in result.failed()
    assert result.checks["node-gpus", "gpu01"]["measured"] == "a100:2"
    assert result.checks["node-gpus", "gpu01"]["expected"] == "a100:4"


def test_jobs_that_slurm_would_keep_for_ever_are_a_warning(deployed: LabCluster) -> None:
    with damaged(deployed, *conf_steps(slurm=("s/^EnforcePartLimits=.*/EnforcePartLimits=NO/",))):
        result = validate(deployed)

    assert result.code == 0
    assert result.checks["over-ask-time", "gpu"]["status"] == "warn"
    assert "EnforcePartLimits" in result.message("over-ask-time", "gpu")


def test_without_cgroups_one_warning_says_that_jobs_are_not_confined(deployed: LabCluster) -> None:
    fallback = (
        "s,^ProctrackType=.*,ProctrackType=proctrack/linuxproc,",
        "s,^TaskPlugin=.*,TaskPlugin=task/affinity,",
        "s,^JobAcctGatherType=.*,JobAcctGatherType=jobacct_gather/linux,",
    )
    with damaged(deployed, *conf_steps(slurm=fallback)):
        result = validate(deployed)

    assert result.code == 0, result.shown
    assert result.checks["confinement", deployed.name]["status"] == "warn"
    for name in ("cpu-confinement", "memory-confinement", "gpu-confinement"):
        assert {result.checks[key]["status"] for key in both(name)} == {"skip"}


def test_a_node_that_ssh_does_not_reach_ends_in_exit_code_4(deployed: LabCluster) -> None:
    stop = "systemctl stop ssh.socket ssh 2>/dev/null; pkill -x sshd; pkill -f '^sshd'; exit 0"
    with damaged(deployed, ("gpu02", stop, "systemctl start ssh")):
        result = validate(deployed)

    assert result.code == 4, result.shown
    assert result.failed() == {("reachable", "gpu02")}
    assert result.checks["node-answers", "gpu02"]["status"] == "pass"
    assert result.checks["services", "gpu01"]["status"] == "pass"


def test_only_the_nodes_of_the_limit_are_tested(deployed: LabCluster) -> None:
    result = validate(deployed, "--limit", "gpu02")

    assert result.code == 0, result.shown
    assert {target for name, target in result.checks if name == "node-answers"} == {"gpu02"}
    assert {target for name, target in result.checks if name == "services"} == {"gpu02"}


def test_a_full_cluster_is_skipped_and_its_jobs_run_on(deployed: LabCluster) -> None:
    jobs = [deployed.submit(LONG_JOB, f"--nodelist={node}", "--exclusive", *QUIET) for node in COMPUTE]
    for job in jobs:
        deployed.wait_for_job(job, "RUNNING")

    try:
        result = validate(deployed)
    finally:
        states = [deployed.job_state(job) for job in jobs]
        deployed.user("ctl1", f"scancel {' '.join(map(str, jobs))}")
    wait_until_idle(deployed)

    assert states == ["RUNNING", "RUNNING"]
    assert result.code == 0, result.shown
    assert {result.checks[key]["status"] for key in both("node-answers")} == {"skip"}
    assert "busy" in result.message("node-answers", "gpu01")
    assert result.elapsed_s < 30
    assert leftovers(deployed) == ""


def test_nodes_with_one_free_gpu_are_tested_with_that_one(deployed: LabCluster) -> None:
    job = deployed.submit(LONG_JOB, "--nodelist=gpu01,gpu02", "--gpus-per-node=1", *QUIET)
    deployed.wait_for_job(job, "RUNNING")

    try:
        result = validate(deployed)
    finally:
        state = deployed.job_state(job)
        deployed.user("ctl1", f"scancel {job}")
    wait_until_idle(deployed)

    assert state == "RUNNING"
    assert result.code == 0, result.shown
    assert {result.checks[key]["status"] for key in both("gpu-assignment")} == {"pass"}
    assert "only one GPU was free" in result.message("gpu-assignment", "gpu01")
    assert "busy: no node has" in result.message("guide-batch", "gpu")
    assert result.elapsed_s < 30
    assert leftovers(deployed) == ""


def test_a_validation_that_is_cut_off_leaves_nothing_behind(deployed: LabCluster) -> None:
    done = deployed.deepopsctl("validate", "--timeout", "3", ok=False)

    assert done.returncode == 124, done.stderr
    until = time.monotonic() + 60
    while leftovers(deployed):
        assert time.monotonic() < until, leftovers(deployed)
        time.sleep(1)
    wait_until_idle(deployed)


def test_plain_ansible_playbook_runs_the_suite_as_well(deployed: LabCluster) -> None:
    root, cluster = Path(__file__).parents[2], deployed.directory
    inventories = ["-i", "inventory/product/hosts.yml", "-i", str(cluster / "inventory/hosts.yml")]
    vault = ["--vault-password-file", str(cluster / ".vault-password")]
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            *inventories,
            *vault,
            "-v",
            "playbooks/validate/smoke.yml",
        ],
        cwd=root,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "guide-interactive" in done.stdout

"""The smoke suite on a real cluster: it passes on a good one, and every check fails on the damage it is there for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.lab.harness import PATIENCE_S, LabCluster, wait_until
from tests.lab.smoke import REPORTED, assert_reported, damaged, leftovers, remove_outputs, validate
from tests.lab.smoke_faults import COMPUTE, DAMAGES, Damage, both, conf_steps
from tests.support.paths import ROOT

LONG_JOB, QUIET = "sleep infinity", ("--mem=100M", "--time=20", "--output=/dev/null")


@pytest.fixture(scope="module")
def limited(battered: LabCluster) -> LabCluster:
    """Deployed, its partition limited to two hours, and with nothing on it that looks like the suite's."""
    battered.wait_until_idle()
    remove_outputs(battered)
    return battered


@pytest.mark.every_change
def test_a_healthy_cluster_passes_every_check(limited: LabCluster, tmp_path: Path) -> None:
    junit, html = tmp_path / "smoke.xml", tmp_path / "smoke.html"

    result = validate(limited, "--junit", str(junit), "--html", str(html))

    assert result.code == 0, result.shown
    assert {check["status"] for check in result.checks.values()} == {"pass"}, result.shown
    assert {name for name, _target in result.checks} == REPORTED
    assert leftovers(limited) == ""
    suite = ET.fromstring(junit.read_text()).find("testsuite")  # noqa: S314 (our own file)
    assert suite is not None
    assert suite.get("tests") == str(len(result.checks))
    assert "gpu02" in html.read_text()
    directory = limited.directory / "runs" / result.run
    assert json.loads((directory / "checks.json").read_text())["ok"] is True
    assert (directory / "report.html").is_file()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.id)
def test_damage_is_reported(limited: LabCluster, damage: Damage) -> None:
    assert_reported(limited, damage)


def copied(cluster: LabCluster, directory: Path, *edits: tuple[str, str, str]) -> Path:
    """The cluster's directory, with (file, old, new) edits: what people believe about the nodes."""
    made = directory / "copy"
    shutil.copytree(cluster.directory, made, ignore=shutil.ignore_patterns("runs"))
    for name, old, new in edits:
        path = made / name
        assert old in path.read_text(), f"{name} has no {old}"
        path.write_text(path.read_text().replace(old, new))
    return made


def test_nodes_that_differ_from_what_was_declared_are_named(limited: LabCluster, tmp_path: Path) -> None:
    hardware = (limited.directory / "hardware.yml").read_text()
    cpus, memory = re.search(r"cpus: \d+", hardware), re.search(r"memory_mb: \d+", hardware)
    assert cpus
    assert memory
    directory = copied(
        limited,
        tmp_path,
        ("hardware.yml", cpus[0], "cpus: 96"),
        ("hardware.yml", memory[0], "memory_mb: 4096"),
        ("cluster.yml", "count: 2", "count: 4"),
        ("cluster.yml", "partitions:\n", 'partitions:\n  - {name: night, nodes: "gpu01"}\n'),
    )

    result = validate(limited, directory=directory)

    assert result.code == 1
    assert both("node-cpus") | both("node-memory") | both("node-gpus") <= result.failed()
    assert ("partition", "night") in result.failed()
    assert result.checks["node-gpus", "gpu01"]["measured"] == "a100:2"
    assert result.checks["node-gpus", "gpu01"]["expected"] == "a100:4"


def test_jobs_that_slurm_would_hold_for_ever_are_a_warning(limited: LabCluster) -> None:
    with damaged(limited, *conf_steps(slurm=("s/^EnforcePartLimits=.*/EnforcePartLimits=NO/",))):
        result = validate(limited)

    assert result.code == 0
    assert result.checks["over-ask-time", "gpu"]["status"] == "warn"
    assert "EnforcePartLimits" in result.message("over-ask-time", "gpu")


def test_without_cgroups_one_warning_says_that_jobs_are_not_confined(limited: LabCluster) -> None:
    fallback = (
        "s,^ProctrackType=.*,ProctrackType=proctrack/linuxproc,",
        # the others do not go with it
        "s,^PrologFlags=.*,PrologFlags=Alloc,",
        "s,^TaskPlugin=.*,TaskPlugin=task/affinity,",
        "s,^JobAcctGatherType=.*,JobAcctGatherType=jobacct_gather/linux,",
    )
    with damaged(limited, *conf_steps(slurm=fallback)):
        result = validate(limited)

    assert result.code == 0, result.shown
    assert result.checks["confinement", limited.name]["status"] == "warn"
    for name in ("cpu-confinement", "memory-confinement", "gpu-confinement"):
        assert {result.checks[key]["status"] for key in both(name)} == {"skip"}


def test_a_node_that_ssh_does_not_reach_ends_in_exit_code_4(limited: LabCluster) -> None:
    stop = "systemctl stop ssh.socket ssh 2>/dev/null; pkill -x sshd; pkill -f '^sshd'; exit 0"
    with damaged(limited, ("gpu02", stop, "systemctl start ssh")):
        result = validate(limited)

    assert result.code == 4, result.shown
    assert result.failed() == {("reachable", "gpu02")}
    assert result.checks["node-answers", "gpu02"]["status"] == "pass"
    assert result.checks["services", "gpu01"]["status"] == "pass"


def test_only_the_nodes_of_the_limit_are_tested(limited: LabCluster) -> None:
    result = validate(limited, "--limit", "gpu02")

    assert result.code == 0, result.shown
    assert {target for name, target in result.checks if name == "node-answers"} == {"gpu02"}
    assert {target for name, target in result.checks if name == "services"} == {"gpu02"}


def test_a_full_cluster_is_skipped_and_its_jobs_run_on(limited: LabCluster) -> None:
    jobs = [limited.submit(LONG_JOB, f"--nodelist={node}", "--exclusive", *QUIET) for node in COMPUTE]
    for job in jobs:
        limited.wait_for_job(job, "RUNNING")

    try:
        result = validate(limited)
    finally:
        states = [limited.job_state(job) for job in jobs]
        limited.user("ctl1", f"scancel {' '.join(map(str, jobs))}")
    limited.wait_until_idle()

    assert states == ["RUNNING", "RUNNING"]
    assert result.code == 0, result.shown
    assert {result.checks[key]["status"] for key in both("node-answers")} == {"skip"}
    assert "busy" in result.message("node-answers", "gpu01")
    assert leftovers(limited) == ""


def test_nodes_with_one_free_gpu_are_tested_with_that_one(limited: LabCluster) -> None:
    job = limited.submit(LONG_JOB, "--nodelist=gpu01,gpu02", "--gpus-per-node=1", *QUIET)
    limited.wait_for_job(job, "RUNNING")

    try:
        result = validate(limited)
    finally:
        state = limited.job_state(job)
        limited.user("ctl1", f"scancel {job}")
    limited.wait_until_idle()

    assert state == "RUNNING"
    assert result.code == 0, result.shown
    assert {result.checks[key]["status"] for key in both("gpu-assignment")} == {"pass"}
    assert "only one GPU was free" in result.message("gpu-assignment", "gpu01")
    assert "busy: no node has" in result.message("guide-batch", "gpu")
    assert leftovers(limited) == ""


def test_a_validation_that_is_cut_off_leaves_nothing_behind(limited: LabCluster) -> None:
    done = limited.deepopsctl("validate", "--timeout", "3", ok=False)

    assert done.returncode == 124, done.stderr
    wait_until("nothing of the suite is left", lambda: not leftovers(limited), details=lambda: leftovers(limited))
    limited.wait_until_idle()


def test_plain_ansible_playbook_runs_the_suite_as_well(limited: LabCluster) -> None:
    root, cluster = ROOT, limited.directory
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
        timeout=PATIENCE_S,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "guide-interactive" in done.stdout

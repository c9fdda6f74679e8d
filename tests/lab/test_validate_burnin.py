"""The burn-in through a real Slurm: cores and memory are loaded, jobs of others are not disturbed, nothing is left.

The lab's GPUs are simulated: their part is skipped, and never passes.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.lab.harness import DEEPOPSCTL, PATIENCE_S, LabCluster, wait_until

NAME = "deepopsctl-burnin"
NODES = ("gpu01", "gpu02")
Checks = dict[tuple[str, str], dict[str, str]]


@pytest.fixture(scope="module")
def careful(deployed: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> LabCluster:
    """The cluster by a directory of its own, where a burn-in uses little memory: all nodes share that of this host."""
    directory = tmp_path_factory.mktemp("burnin") / "cluster"
    shutil.copytree(deployed.directory, directory, ignore=shutil.ignore_patterns("runs"))
    with (directory / "inventory/group_vars/all/settings.yml").open("a") as settings:
        settings.write("\nvalidate_burnin_memory_share: 0.01\n")
    return replace(deployed, directory=directory)


def checks_of(out: str) -> Checks:
    document: dict[str, Any] = json.loads(out)
    return {(check["name"], check["target"]): check for check in document["checks"]}


def of_node(checks: Checks, node: str) -> dict[str, str]:
    """Status by check, of a node and its GPUs."""
    return {name: check["status"] for (name, target), check in checks.items() if target.partition("/")[0] == node}


def running(cluster: LabCluster) -> dict[str, str]:
    """The burn-in's tasks that run, by node."""
    # %i is the task, %j ends with the same word for all
    rows = cluster.root("ctl1", "squeue -h -r -t R -o '%j %N %i' | grep ^" + NAME + "; exit 0").splitlines()
    return {row.split()[1]: row.split()[2] for row in rows}


def leftovers(cluster: LabCluster) -> str:
    """Jobs, files and processes of a burn-in that are still there."""
    jobs = cluster.root("ctl1", f"squeue -h -o %j | grep {NAME}; exit 0")
    files = [cluster.root(node, f"ls -d ~ubuntu/{NAME}* 2>/dev/null; exit 0") for node in ("ctl1", *NODES)]
    processes = [cluster.root(node, "pgrep -fa 'gpucheck[.]burn'; exit 0") for node in NODES]
    return "".join([jobs, *files, *processes])


@contextmanager
def started(cluster: LabCluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A burn-in that runs during the test."""
    argv = [DEEPOPSCTL, "-C", str(cluster.directory), "validate", "burnin", "--json", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            cluster.user("ctl1", f"squeue -h -o %A:%j | grep {NAME} | cut -d: -f1 | xargs -r scancel", ok=False)


def test_idle_nodes_are_loaded_and_a_node_with_a_job_is_left_alone(careful: LabCluster) -> None:
    job = careful.submit("sleep 600", "--nodelist=gpu02", "--mem=100M", "--time=20", "--output=/dev/null")
    careful.wait_for_job(job, "RUNNING")
    try:
        done = careful.deepopsctl("validate", "burnin", "--duration", "10s", "--json", ok=False)
    finally:
        state = careful.job_state(job)
        careful.user("ctl1", f"scancel {job}")
    careful.wait_until_idle()
    # Slurm remembers jobs for some minutes
    shown = careful.root("ctl1", f"scontrol -o show job | grep JobName={NAME}").split()

    assert done.returncode == 0, done.stderr
    checks = checks_of(done.stdout)
    first, second = of_node(checks, "gpu01"), of_node(checks, "gpu02")
    assert {first[name] for name in ("burn-completed", "burn-cpu", "burn-memory")} == {"pass"}, done.stderr
    cpus = careful.root("ctl1", "sinfo -h -N -n gpu01 -o %c")
    assert checks["burn-cpu", "gpu01"]["measured"].startswith(f"{cpus} cores, ")
    assert first["burn-gpu"] == "skip"
    assert checks["burn-gpu", "gpu01"]["message"] == "simulated GPUs of a lab: nothing to measure"
    assert second == {"burn-completed": "skip"}
    assert "busy: jobs run here" in checks["burn-completed", "gpu02"]["message"]
    assert state == "RUNNING"
    assert {"Nice=1000000", "Requeue=0", "OverSubscribe=NO", "ArrayTaskId=0"} <= set(shown), shown
    assert "under load" in done.stderr
    assert leftovers(careful) == ""


def test_a_node_whose_load_is_cancelled_gets_no_pass_and_the_others_go_on(careful: LabCluster) -> None:
    with started(careful, "--duration", "20s") as process:
        wait_until("both nodes are under load", lambda: set(running(careful)) == set(NODES) or process.poll())
        careful.user("ctl1", f"scancel {running(careful)['gpu01']}")
        out, shown = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, shown
    checks = checks_of(out)
    assert "pass" not in of_node(checks, "gpu01").values()
    assert "ended after" in checks["burn-completed", "gpu01"]["message"]
    assert of_node(checks, "gpu02")["burn-completed"] == "pass"
    assert leftovers(careful) == ""


def test_ctrl_c_ends_the_jobs_and_leaves_nothing(careful: LabCluster) -> None:
    with started(careful, "--duration", "1h") as process:
        wait_until("both nodes are under load", lambda: set(running(careful)) == set(NODES) or process.poll())
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130, shown
    assert "its jobs may continue" not in shown
    assert leftovers(careful) == ""
    careful.wait_until_idle()

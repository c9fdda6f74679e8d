"""`status`, and nodes drained and resumed, on a real cluster that is left as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import LabCluster, wait_until
from tests.lab.hostile import NAMES, waiting_jobs

# long: a slow host is not a node that does not answer
PATIENCE = ("--node-timeout", "120")
SMI = "/usr/local/bin/nvidia-smi"
LONG_JOB = "sleep infinity"


def status(cluster: LabCluster, directory: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `status --json`."""
    done = cluster.deepopsctl("-C", str(directory or cluster.directory), "status", "--json", *PATIENCE, ok=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def node(cluster: LabCluster, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `node ... --json`."""
    done = cluster.deepopsctl("node", *arguments, "--json", ok=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def by_name(document: dict[str, Any], field: str) -> dict[str, Any]:
    """One field of every node."""
    return {entry["name"]: entry[field] for entry in document["nodes"]}


@pytest.fixture(scope="module")
def cluster(deployed: LabCluster) -> Iterator[LabCluster]:
    """Freshly compared with cluster.yml, with all nodes idle; whatever a failed test left is reverted at the end."""
    deployed.deploy()
    deployed.wait_until_idle()
    yield deployed
    deployed.root("ctl1", "scancel --user ubuntu; systemctl start slurmctld", ok=False)
    deployed.root("gpu02", "systemctl start ssh", ok=False)
    deployed.root("ctl1", "scontrol update nodename=gpu01,gpu02 state=resume", ok=False)


@contextmanager
def job_on(cluster: LabCluster, name: str) -> Iterator[int]:
    """A job that runs on a node; gone at the end, and the nodes idle."""
    job = cluster.submit(LONG_JOB, f"--nodelist={name}", "--mem=100M", "--gpus=1")
    try:
        cluster.wait_for_job(job, "RUNNING")
        yield job
    finally:
        cluster.root("ctl1", f"scancel {job}", ok=False)
        wait_until(f"job {job} is gone", lambda: not cluster.root("ctl1", f"squeue -h -j {job}", ok=False))


def test_the_status_of_a_healthy_cluster_is_ok_and_saves_no_run(cluster: LabCluster) -> None:
    runs = cluster.deepopsctl("runs", "list", "--json").stdout

    code, document = status(cluster)

    assert (code, document["ok"], document["findings"]) == (0, True, [])
    assert by_name(document, "roles") == {"ctl1": ["controller"], "gpu01": ["compute"], "gpu02": ["compute"]}
    assert by_name(document, "state") == {"ctl1": None, "gpu01": "idle", "gpu02": "idle"}
    assert by_name(document, "gpus") == {"ctl1": None, "gpu01": 2, "gpu02": 2}
    assert set(by_name(document, "deploy").values()) == {"in step"}
    assert document["components"]["slurm"] == {"in step": "ctl1,gpu[01-02]"}
    assert list(document["versions"]["os"]) == ["Debian 13"]
    assert document["versions"]["slurm"] == {next(iter(document["versions"]["slurmctld"])): "ctl1,gpu[01-02]"}
    assert document["last_run"]["run"] == json.loads(runs)["runs"][0]["run"]
    assert document["last_deploy"]["state"] == "ok"
    assert cluster.deepopsctl("runs", "list", "--json").stdout == runs


def test_manual_changes_are_reported(cluster: LabCluster) -> None:
    cluster.root("gpu01", "cp -p /etc/default/slurmd /root/kept; echo '# by hand' >> /etc/default/slurmd")
    try:
        code, document = status(cluster)
    finally:
        cluster.root("gpu01", "mv /root/kept /etc/default/slurmd")

    assert code == 1
    assert by_name(document, "deploy") == {"ctl1": "in step", "gpu01": "drifted", "gpu02": "in step"}
    assert by_name(document, "differences")["gpu01"] == ["/etc/default/slurmd was changed"]
    assert document["components"]["slurm"] == {"in step": "ctl1,gpu02", "drifted": "gpu01"}
    assert [entry["nodes"] for entry in document["findings"]] == [["gpu01"]]


def test_a_node_that_does_not_answer_and_a_changed_request_are_distinguished(
    cluster: LabCluster, tmp_path: Path
) -> None:
    # a directory of its own has no open connections to the nodes
    directory = tmp_path / "copy"
    shutil.copytree(cluster.directory, directory, symlinks=True)
    settings = directory / "inventory" / "group_vars" / "all" / "settings.yml"
    settings.write_text(settings.read_text() + "\nslurmd_verify_timeout: 61\nprometheus_retention: 9d\n")
    cluster.root("gpu02", "systemctl stop ssh.socket ssh.service", ok=False)
    try:
        code, document = status(cluster, directory)
    finally:
        cluster.root("gpu02", "systemctl start ssh")

    assert code == 4
    assert by_name(document, "reachable") == {"ctl1": True, "gpu01": True, "gpu02": False}
    assert by_name(document, "deploy") == {"ctl1": "behind", "gpu01": "behind", "gpu02": "unknown"}
    assert by_name(document, "state")["gpu02"] == "idle"
    assert document["components"]["slurm"] == {"behind": "ctl1,gpu01", "unknown": "gpu02"}
    assert [entry["kind"] for entry in document["findings"]] == ["no answer", "note"]
    names = "prometheus_retention, slurmd_verify_timeout"
    assert document["findings"][1]["message"] == f"slurm behind: {names} changed since the last deploy"


def test_a_slurmctld_that_is_down_is_a_finding_and_no_failure_of_status(cluster: LabCluster) -> None:
    cluster.root("ctl1", "systemctl stop slurmctld")
    try:
        code, document = status(cluster)
    finally:
        cluster.root("ctl1", "systemctl start slurmctld")
        cluster.wait_until_idle()

    assert code == 1
    assert document["slurm"]["installed"]
    assert not document["slurm"]["up"]
    assert by_name(document, "reachable") == dict.fromkeys(("ctl1", "gpu01", "gpu02"), True)
    assert by_name(document, "gpus")["gpu01"] == 2
    assert by_name(document, "differences")["ctl1"] == ["slurmctld.service is inactive"]


def test_a_drain_lets_jobs_go_on_and_a_resume_returns_the_node_to_service(cluster: LabCluster) -> None:
    with job_on(cluster, "gpu01") as job:
        code, first = node(cluster, "drain", "gpu01", "--reason", "new fan {{ 3 }}")
        assert code == 0
        assert first["nodes"] == [
            {
                "name": "gpu01",
                "action": "drained",
                "message": "deepopsctl: new fan {{ 3 }}",
                "state": "draining",
                "reason": "deepopsctl: new fan {{ 3 }}",
                "jobs": [str(job)],
            }
        ]
        late = cluster.deepopsctl(
            *("node", "drain", "gpu01", "--reason", "new fan {{ 3 }}", "--wait", "--timeout", "1"), ok=False
        )
        assert late.returncode == 124, late.stderr
        assert f"jobs {job} still run on gpu01" in late.stderr

        code, second = node(cluster, "drain", "gpu01", "--reason", "new fan {{ 3 }}")
        assert (code, cluster.changed(second), second["nodes"][0]["action"]) == (0, {"ctl1": 0}, "unchanged")

        code, resumed = node(cluster, "resume", "gpu[01-02]")
        assert code == 0
        assert by_name(resumed, "action") == {"gpu01": "resumed", "gpu02": "unchanged"}
        assert cluster.job_state(job) == "RUNNING"


@pytest.mark.every_change
def test_no_name_of_a_job_is_parsed_as_more_jobs_or_nodes(cluster: LabCluster) -> None:
    with waiting_jobs(cluster):
        shown = cluster.deepopsctl("status", *PATIENCE)
        planned = cluster.deepopsctl("plan", "slurm")
        drained, _ = node(cluster, "drain", "gpu01", "--wait", "--reason", "no job is there")
        resumed, document = node(cluster, "resume", "gpu01")

    assert f" 0 jobs run, {len(NAMES)} wait" in shown.stdout
    assert "nothing to do" in planned.stdout + planned.stderr
    assert (drained, resumed, by_name(document, "action")) == (0, 0, {"gpu01": "resumed"})
    assert (shown.stdout + shown.stderr + planned.stdout + planned.stderr).replace("\n", "").isprintable()


def test_a_drain_that_waits_returns_when_the_jobs_have_ended(cluster: LabCluster) -> None:
    job = cluster.submit("sleep 3", "--nodelist=gpu02", "--mem=100M")

    code, document = node(cluster, "drain", "gpu02", "--reason", "a test", "--wait")

    assert code == 0
    assert by_name(document, "jobs") == {"gpu02": []}
    assert cluster.root("ctl1", f"squeue -h -t RUNNING,COMPLETING -j {job}", ok=False) in ("", _gone(job))
    cluster.root("ctl1", f"scancel {job}", ok=False)
    assert node(cluster, "resume", "gpu02")[0] == 0


def test_a_node_whose_driver_finds_other_gpus_than_cluster_yml_declares_is_not_resumed(cluster: LabCluster) -> None:
    assert node(cluster, "drain", "gpu01", "--reason", "a test")[0] == 0
    # the simulated GPUs have no driver: this stands in for one that finds another model
    cluster.root("gpu01", f"printf '#!/bin/sh\\nyes NVIDIA H200, 0:0:0.0 | head -n 2\\n' > {SMI}; chmod 755 {SMI}")
    try:
        code, refused = node(cluster, "resume", "gpu01")
    finally:
        cluster.root("gpu01", f"rm -f {SMI}")

    assert code == 1
    (failure,) = refused["failures"]
    assert "cluster.yml says a100:2, the driver 2 x NVIDIA H200, slurmd gpu:a100:2" in failure["message"]
    assert by_name(refused, "state") == {"gpu01": "drained"}
    assert node(cluster, "resume", "gpu01")[0] == 0


def _gone(job: int) -> str:
    """squeue's error for a job that slurmctld has forgotten."""
    return "slurm_load_jobs error: Invalid job id specified"


def test_nodes_that_others_drained_are_left_alone(cluster: LabCluster) -> None:
    cluster.root("ctl1", "scontrol update nodename=gpu01 state=drain reason='bad DIMM'")
    cluster.root("ctl1", "scontrol update nodename=gpu02 state=down reason='burnt'")
    try:
        code, drained = node(cluster, "drain", "gpu[01-02]", "--reason", "ours")
        assert (code, by_name(drained, "action")) == (0, {"gpu01": "kept", "gpu02": "kept"})
        assert by_name(drained, "reason") == {"gpu01": "bad DIMM", "gpu02": "burnt"}

        code, refused = node(cluster, "resume", "gpu[01-02]")
        assert code == 1
        assert by_name(refused, "action") == {"gpu01": "refused", "gpu02": "refused"}
        theirs, broken = refused["failures"]
        assert (theirs["host"], broken["host"]) == ("gpu01", "gpu02")
        assert theirs["message"].startswith("drained by root since ")
        assert theirs["message"].endswith(": bad DIMM")
        assert "scontrol update nodename=gpu01 state=resume" in theirs["hint"]
        assert broken["message"] == "Slurm has it as down (burnt)"

        code, document = status(cluster)
        assert code == 1
        assert by_name(document, "state") == {"ctl1": None, "gpu01": "drained", "gpu02": "down"}
        assert [(entry["kind"], entry["nodes"]) for entry in document["findings"]] == [
            ("problem", ["gpu02"]),
            ("note", ["gpu01"]),
        ]
    finally:
        cluster.root("ctl1", "scontrol update nodename=gpu01,gpu02 state=resume")
        cluster.wait_until_idle()

"""plan says what deploy does: both lists of changes are compared, on real nodes, in order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, lab_down

LONG_JOB = "for i in $(seq 600); do sleep 1; done"
Done = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and two nodes on which nobody has deployed anything."""
    name = f"{PREFIX}-plan"
    try:
        yield fresh_cluster(name, tmp_path_factory.mktemp(name), "--compute", "2", "--gpus", "a100:2")
    finally:
        lab_down(name)


def plan(cluster: LabCluster, *arguments: str, ok: bool = True) -> dict[str, Any]:
    """`plan --json`, parsed; it has changed no file of the cluster directory."""
    before = contents(cluster.directory)
    done = cluster.deepopsctl("plan", "--json", *arguments, ok=ok)
    assert contents(cluster.directory) == before
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def contents(directory: Path) -> dict[str, bytes]:
    """All that the cluster directory has, but for the run folders and ssh's own."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "known_hosts"]
    kept = [path for path in files if "runs" not in path.relative_to(directory).parts]
    memory = directory / "runs" / "desired.json"
    return {str(path): path.read_bytes() for path in [*kept, *([memory] if memory.exists() else [])]}


def done_by(document: dict[str, Any]) -> set[Done]:
    """Host, kind, name and action of each change."""
    return {(entry["host"], entry["kind"], entry["name"], entry["action"]) for entry in document["changes"]}


def units(document: dict[str, Any]) -> set[Done]:
    """Changes of services alone."""
    return {change for change in done_by(document) if change[1] == "unit"}


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of a file that has to be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_first_deploy_on_bare_nodes_does_what_was_planned(bare: LabCluster) -> None:
    planned = plan(bare)
    assert bare.root("gpu01", "ls /etc/munge /var/lib/deepopsctl /etc/slurm", ok=False).count("No such file") == 3

    summary = bare.deploy()

    assert done_by(planned) == done_by(summary)
    assert ("gpu01", "unit", "slurmd.service", "start") in done_by(planned)
    assert ("ctl1", "database", "slurm_acct_db", "create") in done_by(planned)
    # the node lines were foreseen, too
    conf = next(entry["diff"] for entry in planned["changes"] if entry["name"] == "/etc/slurm/slurm.conf")
    node_line = re.search(r"^NodeName=.*$", bare.root("ctl1", "cat /etc/slurm/slurm.conf"), re.MULTILINE)
    assert node_line
    assert f"+{node_line[0]}" in conf.splitlines()
    key = bare.root("ctl1", "base64 --wrap=0 /etc/munge/munge.key")
    assert key not in json.dumps(planned)


def test_a_deployed_cluster_has_nothing_to_do(bare: LabCluster) -> None:
    assert plan(bare)["plan"] == "nothing to do"
    # and a look at everything agrees
    assert plan(bare, "--full", "--exit-code")["plan"] == "nothing to do"


def test_a_changed_partition_is_reconfigured_under_a_job_that_is_named(bare: LabCluster) -> None:
    job = bare.submit(LONG_JOB, "--nodelist=gpu01", "--mem=100M")
    bare.wait_for_job(job, "RUNNING")
    edit(bare.directory / "cluster.yml", "{name: gpu, ", '{name: gpu, max_time: "1-00:00:00", ')

    planned = plan(bare)
    assert bare.deepopsctl("plan", "--exit-code", ok=False).returncode == 1
    summary = bare.deploy()

    assert done_by(planned) == done_by(summary)
    assert units(planned) == {("ctl1", "unit", "slurmctld.service", "reconfigure")}
    (key,) = (entry for entry in planned["changes"] if entry["kind"] == "key")
    assert (key["name"], key["policy"]) == ("PartitionName=gpu MaxTime", "reconfigure")
    assert [(entry["id"], entry["nodes"]) for entry in planned["jobs"]] == [(str(job), ["gpu01"])]
    assert planned["plan"].endswith("no job is killed")
    assert bare.job_state(job) == "RUNNING"


def test_what_would_end_jobs_is_blocked_beforehand_and_refused_with_nothing_changed(bare: LabCluster) -> None:
    # the job of the test before still runs on gpu01
    options = ("-e", '{"slurm_config": {"SelectType": "select/linear"}, "slurm_time_servers": ["192.0.2.1"]}')
    before = bare.root("ctl1", "cat /etc/slurm/slurm.conf /etc/chrony/conf.d/deepopsctl.conf")

    planned = plan(bare, *options, ok=False)
    refused = bare.deepopsctl("deploy", *options, ok=False)

    assert planned["plan"].startswith("blocked: changing SelectType would end jobs that are there: ")
    assert planned["ok"] is False
    assert refused.returncode == 1
    assert "changing SelectType would end jobs that are there" in refused.stderr
    assert bare.root("ctl1", "cat /etc/slurm/slurm.conf /etc/chrony/conf.d/deepopsctl.conf") == before


def test_a_key_that_slurmd_reads_at_its_start_restarts_it_under_the_job(bare: LabCluster) -> None:
    (job,) = (int(line) for line in bare.root("ctl1", "squeue --noheader --format=%A").split())
    settings = bare.directory / "inventory" / "group_vars" / "all" / "settings.yml"
    settings.write_text("slurm_config: {LaunchParameters: 'use_interactive_step,test_exec'}\n", encoding="utf-8")

    planned = plan(bare)
    summary = bare.deploy()

    assert done_by(planned) == done_by(summary)
    assert units(planned) == {
        ("ctl1", "unit", "slurmctld.service", "restart"),
        ("gpu01", "unit", "slurmd.service", "restart"),
        ("gpu02", "unit", "slurmd.service", "restart"),
    }
    assert planned["restarts"] == 3
    assert bare.job_state(job) == "RUNNING"
    bare.user("ctl1", f"scancel {job}")


def test_what_somebody_did_by_hand_is_planned_and_mended(bare: LabCluster) -> None:
    bare.root("gpu01", "echo '# edited' >> /etc/default/slurmd; systemctl stop munge")

    planned = plan(bare)
    summary = bare.deploy()

    assert done_by(planned) == done_by(summary)
    assert done_by(planned) == {
        ("gpu01", "file", "/etc/default/slurmd", "write"),
        ("gpu01", "unit", "munge.service", "start"),
        ("gpu01", "unit", "slurmd.service", "restart"),
    }
    assert "-# edited" in next(entry["diff"] for entry in planned["changes"] if entry["kind"] == "file")
    assert plan(bare)["plan"] == "nothing to do"

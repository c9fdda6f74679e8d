"""plan lists what deploy does: both lists of changes are compared, on real nodes, in order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import SETTINGS, SLURM_CONFIG, LabCluster, changes, edit

LONG_JOB = "sleep infinity"


@pytest.fixture(scope="module")
def cluster(deployed: LabCluster) -> Iterator[LabCluster]:
    """Deployed; its cluster directory is restored at the end."""
    paths = [deployed.directory / "cluster.yml", deployed.directory / SETTINGS]
    before = [path.read_text(encoding="utf-8") for path in paths]
    yield deployed
    for path, text in zip(paths, before, strict=True):
        path.write_text(text, encoding="utf-8")
    deployed.root("ctl1", "scancel --user=ubuntu", ok=False)
    deployed.deploy()


@pytest.fixture(scope="module")
def job(cluster: LabCluster) -> int:
    """A job that runs on gpu01, for each of the tests that need one, also where it runs alone."""
    number = cluster.submit(LONG_JOB, "--nodelist=gpu01", "--mem=100M")
    cluster.wait_for_job(number, "RUNNING")
    return number


def plan(cluster: LabCluster, *arguments: str, code: int = 0) -> dict[str, Any]:
    """`plan --json`, parsed; it has changed no file of the cluster directory."""
    before = contents(cluster.directory)
    done = cluster.deepopsctl("plan", "--json", *arguments, ok=False)
    assert done.returncode == code, f"plan ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert contents(cluster.directory) == before
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def contents(directory: Path) -> dict[str, bytes]:
    """All that the cluster directory has, but for the run directories and ssh's own."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "known_hosts"]
    paths = [path for path in files if "runs" not in path.relative_to(directory).parts]
    memory = directory / "runs" / "desired.json"
    return {str(path): path.read_bytes() for path in [*paths, *([memory] if memory.exists() else [])]}


def units(document: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """Changes of services alone."""
    return {change for change in changes(document) if change[1] == "unit"}


@pytest.mark.every_change
def test_the_first_deploy_on_bare_nodes_does_what_was_planned(to_deploy: LabCluster) -> None:
    planned = plan(to_deploy)
    # of two nodes that report the same one is checked: what is listed of the other is compared below
    assert planned["same_as"] == {"gpu01": "gpu02"}
    assert to_deploy.root("gpu01", "ls /etc/munge /var/lib/deepopsctl /etc/slurm", ok=False).count("No such file") == 3

    summary = to_deploy.deploy()

    assert changes(planned) == changes(summary)
    assert ("gpu01", "unit", "slurmd.service", "start") in changes(planned)
    assert ("ctl1", "database", "slurm_acct_db", "create") in changes(planned)
    # the node lines were foreseen, too
    conf = next(entry["diff"] for entry in planned["changes"] if entry["name"] == "/etc/slurm/slurm.conf")
    node_line = re.search(r"^NodeName=.*$", to_deploy.root("ctl1", "cat /etc/slurm/slurm.conf"), re.MULTILINE)
    assert node_line
    assert f"+{node_line[0]}" in conf.splitlines()
    key = to_deploy.root("ctl1", "base64 --wrap=0 /etc/munge/munge.key")
    assert key not in json.dumps(planned)


def test_a_deployed_cluster_has_nothing_to_do(cluster: LabCluster) -> None:
    assert plan(cluster)["plan"] == "nothing to do"
    # and a plan of everything agrees
    assert plan(cluster, "--full", "--exit-code")["plan"] == "nothing to do"


def test_a_changed_partition_is_reconfigured_under_a_job_that_is_named(cluster: LabCluster, job: int) -> None:
    edit(cluster.directory / "cluster.yml", '"02:00:00"', '"1-00:00:00"')

    planned = plan(cluster, "--exit-code", code=2)
    summary = cluster.deploy()

    assert changes(planned) == changes(summary)
    assert units(planned) == {("ctl1", "unit", "slurmctld.service", "reconfigure")}
    (key,) = (entry for entry in planned["changes"] if entry["kind"] == "key")
    assert (key["name"], key["policy"]) == ("PartitionName=gpu MaxTime", "reconfigure")
    assert [(entry["id"], entry["nodes"]) for entry in planned["jobs"]] == [(str(job), ["gpu01"])]
    assert planned["plan"].endswith("no job is killed")
    assert cluster.job_state(job) == "RUNNING"


@pytest.mark.usefixtures("job")
def test_what_would_end_jobs_is_blocked_beforehand_and_refused_with_nothing_changed(cluster: LabCluster) -> None:
    options = ("-e", '{"slurm_config": {"SelectType": "select/linear"}, "node_common_time_servers": ["192.0.2.1"]}')
    before = cluster.root("ctl1", "cat /etc/slurm/slurm.conf /etc/chrony/conf.d/deepopsctl.conf")

    planned = plan(cluster, *options, code=1)
    refused = cluster.deepopsctl("deploy", *options, ok=False)

    assert planned["plan"].startswith("blocked: changing SelectType would end jobs that are there: ")
    assert planned["ok"] is False
    assert refused.returncode == 1
    assert "changing SelectType would end jobs that are there" in refused.stderr
    assert cluster.root("ctl1", "cat /etc/slurm/slurm.conf /etc/chrony/conf.d/deepopsctl.conf") == before


def test_a_key_that_slurmd_reads_at_its_start_restarts_it_under_the_job(cluster: LabCluster, job: int) -> None:
    more = SLURM_CONFIG.replace("}", ", LaunchParameters: 'use_interactive_step,test_exec'}")
    edit(cluster.directory / SETTINGS, SLURM_CONFIG, more)

    planned = plan(cluster)
    summary = cluster.deploy()

    assert changes(planned) == changes(summary)
    assert units(planned) == {
        ("ctl1", "unit", "slurmctld.service", "restart"),
        ("gpu01", "unit", "slurmd.service", "restart"),
        ("gpu02", "unit", "slurmd.service", "restart"),
    }
    assert planned["restarts"] == 3
    assert cluster.job_state(job) == "RUNNING"
    cluster.user("ctl1", f"scancel {job}")


def test_manual_changes_are_planned_and_fixed(cluster: LabCluster) -> None:
    cluster.root("gpu01", "echo '# edited' >> /etc/default/slurmd; systemctl stop munge")

    planned = plan(cluster)
    summary = cluster.deploy()

    assert changes(planned) == changes(summary)
    assert changes(planned) == {
        ("gpu01", "file", "/etc/default/slurmd", "write"),
        ("gpu01", "unit", "munge.service", "start"),
        ("gpu01", "unit", "slurmd.service", "restart"),
    }
    assert "-# edited" in next(entry["diff"] for entry in planned["changes"] if entry["kind"] == "file")
    assert plan(cluster)["plan"] == "nothing to do"

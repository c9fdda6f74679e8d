"""What a policy does to real jobs, and what becomes of it in later deploys. The cluster is left as it was found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.model.cluster import Partition
from tests.lab.harness import LabCluster, wait_until

POLICY = """
billing: {gpus: {a100: 4.0}}
priority: {weights: {fairshare: 12000, qos: 3000}, decay_half_life: "14-0"}
preemption: {by: qos, mode: requeue}
qos:
  - {name: low}
  - {name: high, priority: 100, preempts: [low], limits: {MaxWall: "1-12"}}
  - {name: capped, limits: {MaxJobsPerUser: 1, GrpTRES: "cpu=64,mem=1T"}}
accounts:
  - {name: default, qos: [normal, low, high, capped]}
  - {name: physics, fairshare: 20, description: Physics dept, users: [alice, bob]}
"""
LONG_JOB = "sleep infinity"


def wait_until_no_job_is_left(cluster: LabCluster) -> None:
    """Wait until the queue is empty."""
    queue = "squeue --noheader"
    wait_until("the queue is empty", lambda: not cluster.root("ctl1", queue, ok=False))


def declared(text: str) -> str:
    """The lab's cluster.yml with gpu02 as a node without GPUs, one partition for both nodes, and the policy."""
    cluster = parse_spec(text, "cluster.yml")
    return render_spec(
        replace(
            cluster,
            nodes=tuple(replace(node, gpus=None) if node.name == "gpu02" else node for node in cluster.nodes),
            partitions=(Partition("work", ("gpu01", "gpu02"), default=True),),
            policy=parse_spec(text + POLICY, "cluster.yml").policy,
        )
    )


@pytest.fixture(scope="module")
def policed(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with a policy, and gpu02 declared without its GPUs; both undone at the end."""
    spec = deployed.directory / "cluster.yml"
    before = spec.read_text(encoding="utf-8")
    try:
        spec.write_text(declared(before), encoding="utf-8")
        deployed.deploy()
        yield deployed
    finally:
        deployed.root("ctl1", "scancel --user=ubuntu", ok=False)
        wait_until_no_job_is_left(deployed)
        spec.write_text(before, encoding="utf-8")
        deployed.deploy()
        deployed.root(
            "ctl1",
            "sacctmgr -i delete user alice,bob; sacctmgr -i delete account physics; "
            "sacctmgr -i delete qos low,high,capped,own",
            ok=False,
        )


def job(cluster: LabCluster, number: int, field: str) -> str:
    """One field of `scontrol show job`."""
    match = re.search(rf"\b{field}=(\S+)", cluster.root("ctl1", f"scontrol show job {number}", ok=False))
    return match[1] if match else ""


def qos(cluster: LabCluster, name: str, *columns: str) -> str:
    """Columns of a QOS as Slurm has them."""
    return cluster.root("ctl1", f"sacctmgr -nP show qos {name} format={','.join(columns)}")


def rgu_hours(cluster: LabCluster) -> float:
    """What `deepopsctl usage` shows for the account that jobs of the lab charge."""
    accounts = json.loads(cluster.deepopsctl("usage", "default", "--json").stdout)["accounts"]
    return float(accounts[0]["rgu_hours"])


def test_slurm_has_what_is_declared(policed: LabCluster) -> None:
    config = policed.root("ctl1", "scontrol show config")

    assert re.search(r"PriorityWeightFairShare\s+= 12000", config)
    assert re.search(r"PriorityDecayHalfLife\s+= 14-00:00:00", config)
    assert re.search(r"PreemptType\s+= preempt/qos", config)
    assert re.search(r"\b3000\b", policed.root("ctl1", "sprio --weights"))
    assert qos(policed, "high", "priority", "preempt", "maxwall") == "100|low|1-12:00:00"
    assert policed.root("ctl1", "sacctmgr -nP show account physics format=account,descr") == "physics|physics dept"


def test_a_job_without_gpus_goes_to_the_node_without(policed: LabCluster) -> None:
    assert policed.user("ctl1", "srun -N1 -n1 --mem=100M hostname") == "gpu02"


def test_three_jobs_are_billed_and_shown_as_calculated_manually(policed: LabCluster) -> None:
    # gpu01: two A100 of 4.0 RGU and two cores, so a core costs what a GPU costs
    billed = {("--gpus=1", "--cpus-per-task=1"): 4000, ("--gpus=1", "--cpus-per-task=2"): 8000, ("--gpus=2",): 8000}
    before = rgu_hours(policed)
    numbers = {policed.submit("sleep 2", "--mem=100M", *options): units for options, units in billed.items()}
    wait_until_no_job_is_left(policed)

    hours = 0.0
    for number, units in numbers.items():
        tres, seconds = policed.root("ctl1", f"sacct -XnP -j {number} -o AllocTRES,ElapsedRaw").split("|")
        assert f"billing={units}," in tres
        hours += units / 1000 * int(seconds) / 3600
    assert rgu_hours(policed) - before == pytest.approx(hours, abs=0.0002)


def test_a_job_over_its_limit_waits_and_slurm_reports_why(policed: LabCluster) -> None:
    first, second = (policed.submit(LONG_JOB, "--qos=capped", "--mem=100M") for _ in range(2))

    policed.wait_for_job(first, "RUNNING")
    wait_until("Slurm reports why", lambda: job(policed, second, "Reason") == "QOSMaxJobsPerUserLimit")

    policed.user("ctl1", f"scancel {first} {second}")
    wait_until_no_job_is_left(policed)


def test_a_user_without_an_association_is_refused(policed: LabCluster) -> None:
    output = policed.root("ctl1", "su -s /bin/sh nobody -c 'cd /; sbatch --mem=100M --wrap hostname'", ok=False)

    assert "Invalid account or account/partition combination" in output


def test_a_job_that_may_be_preempted_gives_way_and_waits_again(policed: LabCluster) -> None:
    low = policed.submit(LONG_JOB, "--qos=low", "--gpus=2", "--mem=100M", "--requeue")
    policed.wait_for_job(low, "RUNNING")

    high = policed.submit(LONG_JOB, "--qos=high", "--gpus=2", "--mem=100M")

    policed.wait_for_job(high, "RUNNING")
    assert job(policed, low, "JobState") == "PENDING"
    assert job(policed, low, "Restarts") == "1"
    policed.user("ctl1", f"scancel {low} {high}")
    wait_until_no_job_is_left(policed)


def test_a_limit_changed_manually_is_restored_by_a_full_run_alone_which_changes_nothing_else(
    policed: LabCluster,
) -> None:
    policed.root("ctl1", "sacctmgr -i modify qos capped set maxjobsperuser=9")

    assert set(policed.changed(policed.deploy()).values()) == {0}
    assert qos(policed, "capped", "maxjobspu") == "9"

    full = policed.deploy("--full")
    assert policed.changed(full) == {"ctl1": 1, "gpu01": 0, "gpu02": 0}
    assert [(entry["kind"], entry["name"]) for entry in full["changes"]] == [("qos", "capped")]
    assert qos(policed, "capped", "maxjobspu") == "1"


def test_a_limit_declared_no_more_is_removed_and_what_a_site_made_stays(policed: LabCluster) -> None:
    policed.root("ctl1", "sacctmgr -i add qos own; sacctmgr -i modify qos capped set maxsubmitjobsperuser=7")
    spec = policed.directory / "cluster.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace('GrpTRES: "cpu=64,mem=1T"', 'GrpTRES: "cpu=64"'))

    shown = policed.deepopsctl("deploy", "slurm", "--check", "--diff").stderr
    assert "-  GrpTRES[mem] = 1024G" in shown
    assert qos(policed, "capped", "grptres") == "cpu=64,mem=1T"

    summary = policed.deploy()

    assert qos(policed, "capped", "grptres", "maxsubmitpu") == "cpu=64|7"
    assert qos(policed, "own", "name") == "own"
    assert any("QOS that cluster.yml does not declare, left alone: own" in warning for warning in summary["warnings"])

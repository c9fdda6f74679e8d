"""The life of a cluster on Debian 12, in order: every test builds on the one before it.

What depends on the release of Slurm is shown on Debian 13 too, on the cluster that all modules share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml

from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, lab_up, wait_until
from tests.lab.smoke import REPORTED, assert_reported, remove_outputs, validate
from tests.lab.smoke_faults import DAMAGES
from tests.support.budget import BUDGET, cost

# of the suite's damages the one that shows most of its checks: the others show nothing new on another release
LARGEST_DAMAGE = max(DAMAGES, key=lambda damage: len(damage.expected))
# one damage a node, so that none is fixed with another; edited files and what is left alone: test_plan.py
BY_HAND = {
    "ctl1": ("chmod 0644 /etc/munge/munge.key", "stat -c %a /etc/munge/munge.key | grep -qx 400"),
    "gpu01": ("systemctl stop slurmd", "systemctl is-active slurmd"),
    "gpu02": ("systemctl disable --quiet slurmd", "systemctl is-enabled slurmd"),
}
LONG_JOB = "sleep infinity"


def calls(cluster: LabCluster) -> dict[str, int]:
    """Commands that ran under sudo until now, by node: every call of Ansible's, and every question without it."""
    counted = "journalctl --quiet _COMM=sudo | grep -c COMMAND="
    return {node: int(cluster.root(node, counted)) for node in ("ctl1", "gpu01", "gpu02")}


@pytest.fixture(scope="module", params=["debian12", pytest.param("debian13", marks=pytest.mark.shared_cluster)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A fresh lab of one controller and two nodes with two simulated GPUs, nothing deployed; or the shared cluster."""
    if request.param == "debian13":
        yield request.getfixturevalue("deployed")
        return
    name = f"{PREFIX}-{request.param}"
    with fresh_cluster(name, tmp_path_factory, "--compute", "2", "--gpus", "a100:2", os=request.param) as made:
        yield made


@pytest.mark.every_change
@pytest.mark.release("debian12")
def test_the_first_deploy_ends_with_every_node_idle(cluster: LabCluster) -> None:
    summary = cluster.deploy()

    assert summary["ok"]
    assert summary["failures"] == []
    assert cost(summary) == BUDGET["first_deploy"]
    assert cluster.root("ctl1", "sinfo -h -N -o '%N %T %G'").splitlines() == [
        "gpu01 idle gpu:a100:2",
        "gpu02 idle gpu:a100:2",
    ]


@pytest.mark.every_change
def test_an_unchanged_cluster_is_left_alone(cluster: LabCluster) -> None:
    summary = cluster.deploy()

    assert set(cluster.changed(summary).values()) == {0}
    assert cost(summary) == BUDGET["unchanged_deploy"]


@pytest.mark.every_change
@pytest.mark.release("debian12")
def test_the_first_status_of_a_deployed_cluster_needs_no_ansible(cluster: LabCluster) -> None:
    answer = cluster.parsed("status")

    assert {node["name"]: node["deploy"] for node in answer["nodes"]} == dict.fromkeys(
        ("ctl1", "gpu01", "gpu02"), "in step"
    )
    calls_of = "journalctl --quiet -t ansible-deepopsctl.cluster.{} | wc -l"
    # Ansible's modules log that they were called
    for node in ("ctl1", "gpu01"):
        assert [cluster.root(node, calls_of.format(name)) for name in ("drift_check", "node_info")] == ["1", "0"], node


@pytest.mark.every_change
@pytest.mark.release("debian13")
@pytest.mark.parametrize("command", BUDGET["calls"])
def test_what_was_asked_before_is_one_call_to_a_node(cluster: LabCluster, command: str) -> None:
    words = [command, "slurm"] if command in ("deploy", "plan") else [command]
    # Ansible works out what there is to ask, where it has not done so yet
    cluster.deepopsctl(*words)
    before = calls(cluster)

    cluster.deepopsctl(*words)

    assert {node: count - before[node] for node, count in calls(cluster).items()} == BUDGET["calls"][command]


@pytest.mark.every_change
@pytest.mark.release("debian12")
def test_a_full_comparison_costs_what_it_did(cluster: LabCluster) -> None:
    before = calls(cluster)

    summary = cluster.parsed("deploy", "slurm", "--full")

    assert set(cluster.changed(summary).values()) == {0}
    assert cost(summary) == BUDGET["full_deploy"]["host_tasks"]
    assert {node: count - before[node] for node, count in calls(cluster).items()} == BUDGET["full_deploy"]["calls"]


@pytest.mark.release("debian12")
def test_all_components_together_ask_a_node_once(cluster: LabCluster) -> None:
    cluster.parsed("deploy")

    again = cluster.parsed("deploy")

    assert set(cluster.changed(again).values()) == {0}
    assert cost(again) == BUDGET["unchanged_deploy"]


@pytest.mark.release("debian12")
def test_a_later_component_detects_its_damage_whatever_an_earlier_one_did(cluster: LabCluster) -> None:
    # on gpu01 an earlier component has work as well
    cluster.root("gpu01", "rm /var/lib/deepopsctl/records/nvidia.rdma.json")
    for node in ("gpu01", "gpu02"):
        cluster.root(node, "systemctl stop slurmd")

    cluster.parsed("deploy")

    for node in ("gpu01", "gpu02"):
        cluster.root(node, "systemctl is-active slurmd")


@pytest.mark.every_change
def test_a_job_is_confined_to_its_gpu_and_its_core(cluster: LabCluster) -> None:
    seen = cluster.user(
        "ctl1",
        "srun -N1 -n1 --gpus=1 --mem=100M sh -c "
        "'echo visible=$CUDA_VISIBLE_DEVICES; for d in 0 1; do cat /dev/nvidia$d; done; "
        "grep Cpus_allowed_list /proc/self/status' 2>&1",
    )

    assert "visible=0" in seen
    assert re.search(r"nvidia0: No such device or address", seen)
    assert re.search(r"nvidia1: Operation not permitted", seen)
    assert re.search(r"Cpus_allowed_list:\s+\d+$", seen, re.MULTILINE)


@pytest.mark.release("debian12")
def test_a_changed_partition_is_reconfigured_under_a_running_job(cluster: LabCluster) -> None:
    job = cluster.submit(LONG_JOB, "--nodelist=gpu01", "--mem=100M")
    cluster.wait_for_job(job, "RUNNING")
    slurmctld = cluster.root("ctl1", "systemctl show --property MainPID slurmctld")
    slurmd = cluster.root("gpu01", "systemctl show --property MainPID slurmd")
    spec = cluster.directory / "cluster.yml"
    text = spec.read_text(encoding="utf-8")
    partition = re.search(r"- \{name: gpu, .*\}", text)
    assert partition, text
    spec.write_text(text.replace(partition[0], partition[0].replace("}", ', max_time: "02:00:00"}', 1)))

    summary = cluster.deploy()

    assert sum(cluster.changed(summary).values()) == 1
    assert "MaxTime=02:00:00" in cluster.root("ctl1", "scontrol show partition gpu")
    assert cluster.root("ctl1", "systemctl show --property MainPID slurmctld") == slurmctld
    assert cluster.root("gpu01", "systemctl show --property MainPID slurmd") == slurmd
    assert cluster.job_state(job) == "RUNNING"
    cluster.user("ctl1", f"scancel {job}")


@pytest.mark.release("debian12")
def test_the_smoke_suite_passes_with_the_older_slurm_too(cluster: LabCluster) -> None:
    remove_outputs(cluster)
    cluster.wait_until_idle()

    result = validate(cluster)

    assert result.code == 0, result.shown
    # skipped where the partition has no time limit that a job could ask for more than
    assert {key[0] for key, check in result.checks.items() if check["status"] != "pass"} <= {"over-ask-time"}
    assert {name for name, _target in result.checks} == REPORTED


@pytest.mark.release("debian12")
def test_the_smoke_suite_detects_damage_with_the_older_slurm_too(cluster: LabCluster) -> None:
    assert_reported(cluster, LARGEST_DAMAGE)


def test_a_setting_that_slurm_does_not_know_changes_nothing(cluster: LabCluster) -> None:
    before = cluster.root("ctl1", "cat /etc/slurm/slurm.conf")

    done = cluster.deepopsctl("deploy", "slurm", "-e", '{"slurm_config": {"PriorityWeightAgge": 1000}}', ok=False)

    assert done.returncode == 1
    assert "PriorityWeightAgge" in done.stderr
    assert "ctl1" in done.stderr
    assert cluster.root("ctl1", "cat /etc/slurm/slurm.conf") == before


@pytest.mark.every_change
@pytest.mark.release("debian13")
def test_a_setting_that_stops_slurmctld_is_reverted(cluster: LabCluster) -> None:
    before = cluster.root("ctl1", "cat /etc/slurm/slurm.conf")

    done = cluster.deepopsctl("deploy", "slurm", "-e", '{"slurm_config": {"SchedulerType": "sched/none"}}', ok=False)

    assert done.returncode == 1
    assert "old configuration is in force again" in done.stderr
    assert cluster.root("ctl1", "cat /etc/slurm/slurm.conf") == before
    wait_until("slurmctld answers", lambda: "UP" in cluster.root("ctl1", "scontrol ping", ok=False))


@pytest.mark.every_change
@pytest.mark.release("debian13")
def test_what_somebody_broke_on_a_node_is_detected_and_fixed(cluster: LabCluster) -> None:
    for node, (damage, _repaired) in BY_HAND.items():
        cluster.root(node, damage)

    summary = cluster.deploy()

    assert all(cluster.changed(summary)[node] > 0 for node in BY_HAND)
    for node, (_damage, repaired) in BY_HAND.items():
        cluster.root(node, repaired)


@pytest.mark.release("debian12")
def test_a_node_is_added_while_a_job_runs_on_another(cluster: LabCluster) -> None:
    job = cluster.submit(LONG_JOB, "--nodelist=gpu01", "--mem=100M")
    cluster.wait_for_job(job, "RUNNING")
    lab = lab_up(cluster.name, "--os", cluster.os, "--compute", "3", "--gpus", "a100:2")
    node = next(node for node in lab["nodes"] if node["name"] == "gpu03")
    spec = cluster.directory / "cluster.yml"
    document = yaml.safe_load(spec.read_text(encoding="utf-8"))
    document["nodes"].append(
        {
            "names": "gpu03",
            "addresses": node["address"],
            "roles": ["compute"],
            "gpus": {"type": "a100", "count": 2},
        }
    )
    document["partitions"][0]["nodes"] = "gpu[01-03]"
    spec.write_text(yaml.safe_dump(document), encoding="utf-8")
    cluster.deepopsctl("ssh", "setup", "--password-file", str(cluster.password_file))

    summary = cluster.deploy()

    assert summary["ok"]
    assert cluster.root("ctl1", "sinfo -h -N -o '%N %T' -n gpu03") == "gpu03 idle"
    assert cluster.job_state(job) == "RUNNING"
    # the old nodes learn the new name; their daemons are not restarted
    assert cluster.changed(summary)["gpu01"] == 1
    assert cluster.user("ctl1", "srun -N2 --exclude=gpu02 --overlap hostname | sort") == "gpu01\ngpu03"
    cluster.user("ctl1", f"scancel {job}")


@pytest.mark.every_change
def test_no_secret_is_in_any_run_directory_or_journal(cluster: LabCluster) -> None:
    password = re.search(r"StoragePass=(\S+)", cluster.root("ctl1", "cat /etc/slurm/slurmdbd.conf"))
    assert password
    written = cluster.root("ctl1", "base64 --wrap=0 /etc/slurm/slurmdbd.conf")
    secrets = {password[1], written, cluster.root("ctl1", "base64 --wrap=0 /etc/munge/munge.key")}

    texts = {
        str(path): path.read_text(encoding="utf-8", errors="replace")
        for path in (cluster.directory / "runs").rglob("*")
        if path.is_file()
    }
    # Ansible logs the arguments of every module on the node
    journals = {node: cluster.root(node, "journalctl --no-pager --quiet") for node in ("ctl1", "gpu01", "gpu02")}

    assert texts
    assert all("ansible-deepopsctl.cluster.node_state" in text for text in journals.values())
    leaks = [place for place, text in {**texts, **journals}.items() if any(secret in text for secret in secrets)]
    assert leaks == []

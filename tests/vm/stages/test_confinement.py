"""Stage confinement: with cgroup v2 a job can't use what it has not requested. Also tried without confinement."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cluster import wait_until
from tests.vm.stages.vmcluster import CONTROLLER, NODE, VmCluster

# tries to move to every CPU of the node, one after the other
CORES = """import json, os
reached = []
for cpu in range(os.cpu_count()):
    try:
        os.sched_setaffinity(0, {cpu})
        reached.append(cpu)
    except OSError:
        pass
print(json.dumps(reached))"""
# holds 200 MB: written to, or the kernel would give no memory for it
MEMORY = """import json
held = b"x" * (200 << 20)
print(json.dumps(len(held) >> 20))"""
DEVICES = """import errno, json, os
def tried(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "OK"
print(json.dumps([tried("/dev/nvidia0"), tried("/dev/nvidia1")]))"""


@pytest.fixture(scope="module", autouse=True)
def trials(cluster: VmCluster) -> None:
    """The trials as files that the user can read."""
    for name, text in (("cores", CORES), ("memory", MEMORY), ("devices", DEVICES)):
        cluster.user(NODE, f"cat > /tmp/{name}.py <<'END'\n{text}\nEND\n")


def tried(cluster: VmCluster, trial: str, *options: str) -> Any:
    """What a trial found out inside a job."""
    return json.loads(cluster.user(CONTROLLER, f"srun --quiet -n1 {' '.join(options)} python3 /tmp/{trial}.py"))


def test_without_a_job_nothing_is_refused(cluster: VmCluster) -> None:
    assert json.loads(cluster.user(NODE, "python3 /tmp/cores.py")) == [0, 1]
    assert json.loads(cluster.user(NODE, "python3 /tmp/memory.py")) == 200
    assert json.loads(cluster.user(NODE, "python3 /tmp/devices.py")) == ["OK", "OK"]


def test_a_job_reaches_its_cores_only(cluster: VmCluster) -> None:
    assert len(tried(cluster, "cores", "--cpus-per-task=1", "--mem=100M")) == 1
    assert tried(cluster, "cores", "--cpus-per-task=2", "--mem=100M") == [0, 1]


def test_a_job_that_uses_more_than_its_memory_is_killed(cluster: VmCluster) -> None:
    assert tried(cluster, "memory", "--mem=400M") == 200

    output = cluster.user(CONTROLLER, "srun --quiet -n1 --mem=100M --job-name=greedy python3 /tmp/memory.py", ok=False)

    assert "200" not in output.splitlines(), output
    assert "oom" in output.lower(), output
    rows = "sacct -nX -P --name=greedy -o state"
    wait_until(
        "the accounting has the reason why the job ended",
        lambda: cluster.user(CONTROLLER, rows) == "OUT_OF_MEMORY",
        cluster.patience_s,
    )
    assert "CONSTRAINT_MEMCG" in cluster.root(NODE, "dmesg | grep oom-kill")


def test_a_job_opens_its_devices_only(cluster: VmCluster) -> None:
    assert tried(cluster, "devices", "--gpus=2", "--mem=100M") == ["OK", "OK"]
    assert sorted(tried(cluster, "devices", "--gpus=1", "--mem=100M")) == ["EPERM", "OK"]
    assert tried(cluster, "devices", "--mem=100M") == ["EPERM", "EPERM"]


def test_with_the_confinement_manually_removed_every_trial_succeeds_until_the_next_deploy(cluster: VmCluster) -> None:
    cluster.root(CONTROLLER, "sed -i '/^Constrain/s/=yes/=no/' /etc/slurm/cgroup.conf && systemctl restart slurmctld")
    cluster.root(NODE, "systemctl restart slurmd")
    cluster.wait_for_state("idle")

    assert tried(cluster, "cores", "--cpus-per-task=1", "--mem=100M") == [0, 1]
    assert tried(cluster, "memory", "--mem=100M") == 200
    assert tried(cluster, "devices", "--mem=100M") == ["OK", "OK"]

    assert cluster.deploy()["ok"]
    cluster.wait_for_state("idle")
    assert len(tried(cluster, "cores", "--cpus-per-task=1", "--mem=100M")) == 1
    assert tried(cluster, "devices", "--mem=100M") == ["EPERM", "EPERM"]

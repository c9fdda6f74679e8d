"""Nodes come, go and are exchanged while a job runs on another: every test builds on the one before it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from tests.lab.harness import PATIENCE_S, LabCluster, lab_up
from tests.lab.hostile import waiting_jobs
from tests.lab.leaks import Leaks
from tests.support.budget import BUDGET, cost

# continues through all of this on a node that no command is about, and ends well
BYSTANDER = "gpu01"
PATIENT_JOB = "until [ -e /tmp/end-of-$SLURM_JOB_ID ]; do sleep 0.5; done"
GPUS = ("--gpus", "a100:2")
# requests of waiting jobs, by what they name
NAMING = (("-p", "short"), ("-C", "big"), ("-p", "gpu"))


@pytest.fixture(scope="module")
def cluster(expendable: LabCluster) -> LabCluster:
    """A controller and two nodes, deployed."""
    return expendable


@pytest.fixture(scope="module")
def job(cluster: LabCluster) -> int:
    """A running job on the node that must stay untouched."""
    number = cluster.submit(PATIENT_JOB, f"--nodelist={BYSTANDER}", "--mem=100M", "--time=60")
    cluster.wait_for_job(number, "RUNNING")
    return number


@pytest.fixture(scope="module")
def clone(cluster: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> LabCluster:
    """A copy of the cluster directory, as it was before all of this, on what counts as another control machine."""
    copy = shutil.copytree(cluster.directory, tmp_path_factory.mktemp("clone") / "cluster", symlinks=True)
    return replace(cluster, directory=copy)


def components(cluster: LabCluster, node: str) -> set[str]:
    """What a node has records of."""
    return {name.partition(".")[0] for name in cluster.root(node, "ls /var/lib/deepopsctl/records").split()}


def deployed_in_it(cluster: LabCluster) -> set[str]:
    """The components of the runs of `node add` until now."""
    paths = (cluster.directory / "runs").glob("*-node-add/run.json")
    return {
        name for path in paths for name in json.loads(path.read_text(encoding="utf-8"))["playbooks"] if "/" not in name
    }


def verb(cluster: LabCluster, *words: str, code: int = 0) -> dict[str, Any]:
    """A `node` command with --json; its object."""
    done = cluster.deepopsctl("node", *words, "--json", ok=False)
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def addresses(cluster: LabCluster, compute: int) -> dict[str, str]:
    """Grow the lab to this many compute nodes; return the addresses of all."""
    lab = lab_up(cluster.name, "--compute", str(compute), *GPUS)
    return {node["name"]: node["address"] for node in lab["nodes"]}


def podman(*words: str) -> None:
    subprocess.run(["podman", *words], check=True, capture_output=True, timeout=PATIENCE_S)


def spec(cluster: LabCluster) -> str:
    return (cluster.directory / "cluster.yml").read_text(encoding="utf-8")


@pytest.mark.every_change
def test_a_node_is_added_while_the_others_see_no_task(cluster: LabCluster, clone: LabCluster, job: int) -> None:
    path = cluster.directory / "cluster.yml"
    path.write_text(spec(cluster).replace("\nnodes:", "\n# bought in 2024\nnodes:"), encoding="utf-8")
    address = addresses(cluster, 3)["gpu03"]

    leaks = Leaks(cluster, {"login password": cluster.password_file.read_text(encoding="utf-8").strip()})
    words = ("node", "add", f"gpu03={address}", "--password-file", str(cluster.password_file))

    report = json.loads(leaks.run(*words, "--json").stdout)

    leaks.in_cluster_directory()
    assert leaks.seen == []
    assert leaks.on_node("gpu03") == {"/etc/munge/munge.key": "400"}
    assert report["ok"]
    assert set(report["hosts"]) == {"ctl1", "gpu03"}
    assert {check["status"] for check in report["checks"]} <= {"pass", "skip", "warn"}
    assert "# bought in 2024\nnodes:" in spec(cluster)
    assert '"gpu[01-03]"' in spec(cluster)
    assert cluster.node_state("gpu03") == "idle"
    assert cluster.root("ctl1", "scontrol show reservation").startswith("No reservations")
    assert cluster.user("ctl1", "srun -w gpu03 --mem=100M hostname") == "gpu03"
    assert cluster.job_state(job) == "RUNNING"
    # and no other that a deploy without names would have deployed; modules before this one may have deployed these two
    assert components(cluster, "gpu03") - {"monitoring", "nvidia"} == {"slurm"}
    if deployed_in_it(cluster) == {"slurm"}:
        assert cost(report) == BUDGET["node_add"]


def test_an_older_clone_reports_what_it_would_undo_and_changes_nothing(cluster: LabCluster, clone: LabCluster) -> None:
    assert spec(clone) != spec(cluster)

    deployed = clone.deepopsctl("deploy", "slurm", ok=False)
    planned = json.loads(clone.deepopsctl("plan", "slurm", "--json", ok=False).stdout)
    removed = verb(clone, "remove", "gpu02", "--yes", code=1)

    assert deployed.returncode == 1
    for text in (deployed.stderr, planned["plan"], removed["stopped"]["message"]):
        assert "it would remove node gpu03" in text
        assert str(cluster.directory) in text
    assert removed["hosts"] == {}
    assert {cluster.node_state(node) for node in ("gpu02", "gpu03")} <= {"idle", "mixed"}


def test_adding_it_again_reports_that_nothing_changes(cluster: LabCluster) -> None:
    report = verb(cluster, "add", "gpu03")

    assert report["ok"]
    assert sum(counts["changed"] for counts in report["hosts"].values()) == 0


def test_a_host_that_does_not_answer_leaves_cluster_yml_as_it_was(cluster: LabCluster) -> None:
    before, pins = spec(cluster), (cluster.directory / "known_hosts").read_bytes()
    unused = addresses(cluster, 3)["gpu03"].rpartition(".")[0] + ".77"

    report = verb(cluster, "add", f"gpu04={unused}", code=4)

    assert "gpu04" in report["stopped"]["message"]
    assert spec(cluster) == before
    assert (cluster.directory / "known_hosts").read_bytes() == pins
    assert report["hosts"] == {}


def test_a_node_with_a_job_is_not_removed(cluster: LabCluster) -> None:
    busy = cluster.submit(PATIENT_JOB, "--nodelist=gpu03", "--mem=100M", "--time=60")
    cluster.wait_for_job(busy, "RUNNING")
    before = spec(cluster)

    report = verb(cluster, "remove", "gpu03", "--yes", "--timeout", "1s", code=124)

    assert f"{busy} (ubuntu)" in report["stopped"]["message"]
    assert spec(cluster) == before
    assert cluster.job_state(busy) == "RUNNING"
    assert "deepopsctl: node remove" in cluster.root("ctl1", "sinfo -h -R -o %E")
    cluster.user("gpu03", f"touch /tmp/end-of-{busy}")
    cluster.wait_for_job(busy, "COMPLETED")


@pytest.fixture(scope="module")
def later(cluster: LabCluster) -> dict[str, int]:
    """Jobs that wait for their time, by what they ask for, before gpu03 goes."""
    requests = {
        "node": "-w gpu03",
        "held": "-w gpu03 --hold",
        "three": "-N 3",
        "array": "-w gpu03 --array=1-4%2",
        "any": "",
    }
    return {
        what: cluster.submit("true", "--begin=now+1day", "--mem=100M", *words.split())
        for what, words in requests.items()
    }


def test_waiting_jobs_that_need_a_node_keep_it_from_being_removed(cluster: LabCluster, later: dict[str, int]) -> None:
    before = spec(cluster)

    report = verb(cluster, "remove", "gpu03", "--yes", code=1)
    without = before.replace("gpu[01-03]", "gpu[01-02]").replace(".[101-103]", ".[101-102]")
    (cluster.directory / "cluster.yml").write_text(without, encoding="utf-8")
    planned = json.loads(cluster.deepopsctl("plan", "slurm", "--json", ok=False).stdout)
    deployed = cluster.deepopsctl("deploy", "slurm", ok=False)
    (cluster.directory / "cluster.yml").write_text(before, encoding="utf-8")

    assert deployed.returncode == 1
    for text in (report["stopped"]["message"], planned["plan"], deployed.stderr):
        assert {what for what, job in later.items() if str(job) in text} == later.keys() - {"any"}, text
    assert cluster.node_state("gpu03") in ("idle", "drained")
    assert {cluster.job_state(job) for job in later.values()} == {"PENDING"}


def test_waiting_jobs_that_need_a_partition_or_a_feature_keep_it(cluster: LabCluster) -> None:
    path, before = cluster.directory / "cluster.yml", spec(cluster)
    short = '\n  - {name: short, nodes: "gpu[01-02]"}\n'
    whole = before.replace("type: a100, count: 2}}", "type: a100, count: 2}, features: [big]}")
    whole = whole.replace("\npartitions:\n", f"\npartitions:{short}")
    path.write_text(whole, encoding="utf-8")
    cluster.deepopsctl("deploy", "slurm")
    jobs = {words: cluster.submit("true", "--begin=now+1day", "--mem=100M", *words) for words in NAMING}

    for goes, what in ((short, "-p short"), (", features: [big]", "-C big")):
        path.write_text(whole.replace(goes, "\n" if goes == short else ""), encoding="utf-8")
        planned = json.loads(cluster.deepopsctl("plan", "slurm", "--json", ok=False).stdout)
        deployed = cluster.deepopsctl("deploy", "slurm", ok=False)
        assert deployed.returncode == 1
        for text in (planned["plan"], deployed.stderr):
            assert [" ".join(words) for words, job in jobs.items() if f"{job} (ubuntu)" in text] == [what]
    path.write_text(whole, encoding="utf-8")

    assert {cluster.job_state(job) for job in jobs.values()} == {"PENDING"}
    cluster.root("ctl1", "scancel " + " ".join(map(str, jobs.values())))
    path.write_text(before, encoding="utf-8")
    cluster.deepopsctl("deploy", "slurm")


@pytest.mark.every_change
def test_a_removed_node_leaves_nothing_behind(cluster: LabCluster, job: int) -> None:
    # a user's job that pretends that others run there; --force cancels what does
    forged = f"x\n{job}|ubuntu|RUNNING|gpu|gpu03|y\n--partition=gpu|ubuntu|RUNNING|gpu|gpu03|y"
    with waiting_jobs(cluster, [forged]) as (waiting,):
        report = verb(cluster, "remove", "gpu03", "--yes", "--force", "--hold-waiting")
        assert cluster.job_state(int(waiting)) == "PENDING"

    assert set(report["hosts"]) == {"ctl1", "gpu03"}
    for name in ("cluster.yml", "hardware.yml", "known_hosts", "inventory/hosts.yml"):
        text = (cluster.directory / name).read_text(encoding="utf-8")
        assert "gpu03" not in text, name
        assert "01-03" not in text, name
    left = "grep -rlE 'gpu03|gpu\\[01-03\\]' /etc/slurm /etc/hosts /etc/chrony /home/ubuntu/.ssh"
    assert cluster.root("ctl1", left, ok=False) == ""
    assert cluster.root("gpu03", "systemctl is-active slurmd munge; ls /etc/munge/munge.key", ok=False).startswith(
        "inactive\ninactive\nls:"
    )
    # no user has a job there any more: no user would get in
    assert not cluster.holds("gpu03", "grep -q slurm /etc/pam.d/sshd")
    assert cluster.root("ctl1", "sinfo -h -N -o %N").split() == ["gpu01", "gpu02"]
    assert cluster.job_state(job) == "RUNNING"


def test_the_jobs_that_needed_it_are_held_and_the_others_are_not(cluster: LabCluster, later: dict[str, int]) -> None:
    queue = dict(line.split("|") for line in cluster.root("ctl1", "squeue -h -o '%F|%T %Q' -u ubuntu").splitlines())

    assert {what for what, job in later.items() if queue[str(job)] == "PENDING 0"} == later.keys() - {"any"}
    assert queue[str(later["any"])] != "PENDING 0"
    cluster.root("ctl1", "scancel " + " ".join(map(str, later.values())))


def test_another_host_replaces_a_node_of_the_same_name(cluster: LabCluster, job: int) -> None:
    podman("rm", "--force", "--time", "0", f"{cluster.name}-gpu02")
    addresses(cluster, 3)
    pins = (cluster.directory / "known_hosts").read_text(encoding="utf-8")

    report = verb(cluster, "replace", "gpu02", "--yes", "--password-file", str(cluster.password_file))

    assert report["ok"]
    assert set(report["hosts"]) == {"ctl1", "gpu02"}
    now = (cluster.directory / "known_hosts").read_text(encoding="utf-8")
    lines = [line for line in pins.splitlines() if "gpu02" in line]
    assert lines
    assert not any(line in now for line in lines)
    assert cluster.user("ctl1", "srun -w gpu02 --mem=100M hostname") == "gpu02"
    assert cluster.user("ctl1", "ssh gpu02 hostname") == "gpu02"
    assert cluster.job_state(job) == "RUNNING"


def test_a_dead_node_is_removed_with_a_warning_and_its_jobs_end(cluster: LabCluster) -> None:
    job = cluster.user("ctl1", "sbatch --parsable -w gpu02 --mem=100M --wrap 'sleep 3000'")
    cluster.wait_for_job(int(job), "RUNNING")
    podman("stop", "--time", "0", f"{cluster.name}-gpu02")

    report = verb(cluster, "remove", "gpu02", "--yes", "--force")

    assert cluster.job_state(int(job)).startswith("CANCELLED")
    assert any("gpu02 did not answer" in warning for warning in report["warnings"])
    assert cluster.root("ctl1", "sinfo -h -N -o %N").split() == ["gpu01"]


def test_a_node_that_fails_stays_out_of_service_and_the_next_try_finishes(cluster: LabCluster, job: int) -> None:
    address = addresses(cluster, 4)["gpu04"]
    login = ("--password-file", str(cluster.password_file))

    cluster.root("gpu04", "systemctl mask --quiet slurmd")

    report = verb(cluster, "add", f"gpu04={address}", *login, code=1)

    assert not report["ok"]
    assert set(report["hosts"]) == {"ctl1", "gpu04"}
    assert "gpu04" in cluster.root("ctl1", "sinfo -h -N -o %N").split()
    refused = cluster.user("ctl1", "srun -w gpu04 --mem=100M --immediate=2 hostname", ok=False)
    assert "gpu04" not in refused.splitlines()
    cluster.root("gpu04", "systemctl unmask --quiet slurmd")
    assert verb(cluster, "add", "gpu04")["ok"]
    assert cluster.user("ctl1", "srun -w gpu04 --mem=100M hostname") == "gpu04"
    assert cluster.job_state(job) == "RUNNING"


@pytest.mark.every_change
def test_the_running_job_ended_well(cluster: LabCluster, job: int) -> None:
    cluster.user(BYSTANDER, f"touch /tmp/end-of-{job}")

    cluster.wait_for_job(job, "COMPLETED")

"""MIG on a real node under a real Slurm: jobs, drains, systemd and a restart are real, nvidia-smi is a stand-in.

The stand-in (tests/standin/nvidia-smi) keeps state, loses the slices and their device files with the machine, and
refuses another mode while a DCGM runs. It proves what deepopsctl asks for and when; nothing here was asked of a GPU.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, lab_down, wait_until

STANDIN = Path(__file__).parent.parent / "standin" / "nvidia-smi"
HOME = "/var/lib/standin-nvidia"
UNIT = "deepopsctl-mig.service"
LONG_JOB = "for i in $(seq 600); do sleep 1; done"
WHOLE = "gpus: {type: a100, count: 2}"
CUT = 'gpus: {type: a100, count: 2, mig: [{"1g.5gb": [7, 8, 9, 10, 11, 12, 13]}, {"3g.20gb": [1], "2g.10gb": [3]}]}'
WISHES = {("mig", "GPU 0: 7 x 1g.5gb", "set"), ("mig", "GPU 1: 3g.20gb + 2g.10gb", "set")}
SLICES = ["0 1g.5gb"] * 7 + ["1 3g.20gb", "1 2g.10gb"]
DCGM = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


def write(cluster: LabCluster, path: str, content: str, mode: str = "0644") -> None:
    """A file on the GPU node."""
    text = base64.b64encode(content.encode()).decode()
    cluster.root("gpu01", f"mkdir -p $(dirname {path}) && echo {text} | base64 -d > {path} && chmod {mode} {path}")


def declare(cluster: LabCluster, old: str, new: str) -> None:
    """Another layout in cluster.yml."""
    spec = cluster.directory / "cluster.yml"
    text = spec.read_text(encoding="utf-8")
    assert old in text
    spec.write_text(text.replace(old, new), encoding="utf-8")


def run(cluster: LabCluster, verb: str, *arguments: str, ok: bool = True) -> dict[str, Any]:
    """plan or deploy of the component nvidia, parsed."""
    done = cluster.deepopsctl(verb, "nvidia", "--json", *arguments, ok=ok)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def changes(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Kind, name and action of what changes on the GPU node."""
    return {(entry["kind"], entry["name"], entry["action"]) for entry in document["changes"]}


def slices(cluster: LabCluster) -> list[str]:
    """GPU and profile of each slice."""
    shown = cluster.root("gpu01", "nvidia-smi mig -lgi", ok=False)
    rows = [line.split() for line in shown.splitlines() if " MIG " in line]
    return [f"{row[1]} {row[3]}" for row in rows]


def orders(cluster: LabCluster) -> int:
    """How many commands that change something nvidia-smi has had."""
    return int(cluster.root("gpu01", f"grep -c -E -- '-mig|-cgi|-dci|-dgi|reset' {HOME}/calls.log || true"))


def drain(cluster: LabCluster) -> None:
    """Take the node out of service, empty."""
    cluster.deepopsctl("node", "drain", "gpu01", "--reason", "other slices", "--wait", "--timeout", "300")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and a node with Slurm, two whole GPUs by the stand-in, and something that holds them open."""
    name = f"{PREFIX}-mig"
    try:
        made = fresh_cluster(name, tmp_path_factory.mktemp(name), "--compute", "1", "--gpus", "a100:2")
        write(made, "/usr/bin/nvidia-smi", STANDIN.read_text(encoding="utf-8"), "0755")
        write(made, f"{HOME}/settings.json", json.dumps({"blockers": ["nvidia-dcgm.service"]}))
        write(made, "/etc/systemd/system/nvidia-dcgm.service", DCGM)
        made.root("gpu01", "systemctl daemon-reload && systemctl enable --now --quiet nvidia-dcgm")
        made.deepopsctl("deploy")
        yield made
    finally:
        lab_down(name)


def test_whole_gpus_that_are_to_be_whole_are_left_alone(cluster: LabCluster) -> None:
    assert orders(cluster) == 0
    assert cluster.holds("gpu01", f"test ! -e /etc/systemd/system/{UNIT}")


def test_nothing_is_cut_under_a_job(cluster: LabCluster) -> None:
    cluster.wait_until_idle()
    job = cluster.submit(LONG_JOB, "--gpus=1", "--mem=100M")
    cluster.wait_for_job(job, "RUNNING")
    declare(cluster, WHOLE, CUT)

    planned = run(cluster, "plan", ok=False)
    refused = run(cluster, "deploy", ok=False)

    assert changes(planned) >= WISHES
    (failure,) = refused["failures"]
    assert failure["message"] == "the MIG slices of GPU 0, 1 on gpu01 have to change, and jobs run on it"
    assert "deepopsctl node drain gpu01" in failure["hint"]
    assert [entry["message"] for entry in planned["blocked"]] == [failure["message"]]
    assert cluster.job_state(job) == "RUNNING"
    assert orders(cluster) == 0
    cluster.root("ctl1", f"scancel {job}")
    cluster.wait_for_job(job, "CANCELLED")


def test_nor_on_an_idle_node_that_slurm_may_start_jobs_on(cluster: LabCluster) -> None:
    cluster.wait_until_idle()

    (failure,) = run(cluster, "deploy", ok=False)["failures"]

    assert failure["message"].endswith("and Slurm may start jobs on it")
    assert orders(cluster) == 0


def test_a_drained_node_is_cut_as_planned_and_a_second_run_changes_nothing(cluster: LabCluster) -> None:
    drain(cluster)
    dcgm = cluster.root("gpu01", "systemctl show nvidia-dcgm -p InvocationID")
    planned = run(cluster, "plan")

    first = run(cluster, "deploy")
    full = run(cluster, "deploy", "--full")
    again = run(cluster, "deploy")

    assert changes(first) == changes(planned) >= WISHES
    assert slices(cluster) == SLICES
    assert [document["hosts"]["gpu01"]["changed"] for document in (full, again)] == [0, 0]
    assert again["hosts"]["gpu01"]["ok"] < 5
    # what held the GPUs open let go of them, and is back
    assert cluster.root("gpu01", "systemctl show nvidia-dcgm -p InvocationID") != dcgm
    assert cluster.root("gpu01", "systemctl is-active nvidia-dcgm") == "active"


def test_other_numbers_than_the_drivers_are_refused_with_what_to_write(cluster: LabCluster) -> None:
    declare(cluster, '"2g.10gb": [3]', '"2g.10gb": [5]')
    before = orders(cluster)

    (failure,) = run(cluster, "deploy", ok=False)["failures"]

    assert failure["message"].startswith("GPU 1: the driver numbered its slices")
    assert 'write mig: {"3g.20gb": [1], "2g.10gb": [3]}' in failure["message"]
    assert orders(cluster) == before
    declare(cluster, '"2g.10gb": [5]', '"2g.10gb": [3]')


def test_jobs_get_slices_by_the_names_that_cluster_yml_gives_them(cluster: LabCluster) -> None:
    cluster.deepopsctl("deploy", "slurm")
    cluster.deepopsctl("node", "resume", "gpu01")
    cluster.wait_until_idle()

    job = cluster.submit("true", "--gres=gpu:a100_1g.5gb:2", "--mem=100M")
    cluster.wait_for_job(job, "COMPLETED")

    gres = cluster.root("ctl1", "scontrol --oneliner show node gpu01").split("Gres=")[1].split()[0]
    assert gres.startswith("gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:1"), gres


def test_the_slices_are_there_again_after_a_restart_before_slurmd_looks(cluster: LabCluster) -> None:
    cluster.power_cut("gpu01")
    cluster.power_on("gpu01")

    # it does not start where a slice's device file is missing, and those go with the machine
    wait_until(
        "slurmd runs again",
        lambda: cluster.holds("gpu01", "systemctl is-active --quiet slurmd"),
        found=lambda: cluster.root("gpu01", "systemctl list-jobs; systemctl status slurmd", ok=False),
    )

    assert slices(cluster) == SLICES
    assert cluster.root("gpu01", "systemctl --failed --no-legend") == ""
    assert run(cluster, "deploy")["hosts"]["gpu01"]["changed"] == 0


def test_gpus_become_whole_again_and_nothing_is_left_for_the_next_start(cluster: LabCluster) -> None:
    drain(cluster)
    declare(cluster, CUT, WHOLE)

    done = run(cluster, "deploy")
    again = run(cluster, "deploy", "--full")

    assert changes(done) >= {("mig", "GPU 0: whole", "set"), ("mig", "GPU 1: whole", "set"), ("unit", UNIT, "stop")}
    assert slices(cluster) == []
    assert again["hosts"]["gpu01"]["changed"] == 0
    assert cluster.holds("gpu01", f"test ! -e /etc/systemd/system/{UNIT} -a ! -e /etc/deepopsctl/mig.json")

"""What users read when they ask for what no node has: Slurm decides, and job_submit.lua says what would fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit

# a script of the site's own is enough for a job_submit.lua
SCRIPTED = 'slurm_conf_job_script: "-- nothing"\nslurm_conf_contact: help@example.com\n'
SHORT = '  - {name: short, nodes: "gpu01", max_time: "1:00:00"}\n'
GPU = '  - {name: gpu, nodes: "gpu[01-02]", default: true, max_time: "02:00:00"}\n'
SUBMIT = "--wrap=true"


@pytest.fixture(scope="module")
def scripted(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with the script, and a further partition."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before = {path: path.read_text(encoding="utf-8") for path in (spec, settings)}
    try:
        edit(spec, GPU, GPU + SHORT)
        edit(settings, "---\n", f"---\n{SCRIPTED}")
        deployed.deepopsctl("deploy", "slurm")
        yield deployed
    finally:
        deployed.root("ctl1", "scancel --user=ubuntu; userdel -r stranger", ok=False)
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
        deployed.deepopsctl("deploy", "slurm", ok=False)


@pytest.mark.parametrize(
    ("command", "reason", "instead"),
    [
        (f"sbatch --gres=gpu:h100:1 {SUBMIT}", "no node has a GPU of type h100", "2 x a100"),
        (f"sbatch --gpus=1g.10gb:1 {SUBMIT}", "no node has a GPU of type 1g.10gb", "2 x a100"),
        (f"sbatch --gpus-per-task=a100:3 -n 2 {SUBMIT}", "3 GPUs of type a100 on one node, and a node has 2", "2 x"),
        ("salloc --gpus=9 true", "9 GPUs, and all nodes together have 4", "partition gpu has 2 nodes"),
        ("srun --mem=9000G true", "9000G of memory on one node, and a node has", "partition gpu has 2 nodes"),
        (f"sbatch --array=1-3 -c 999 {SUBMIT}", "999 CPUs on one node, and a node has", "partition gpu has 2 nodes"),
        (f"sbatch -N 9 {SUBMIT}", "9 nodes, and it has 2", "partition gpu has 2 nodes"),
        (f"sbatch --gres=gpu:1 : --gres=gpu:h100:1 {SUBMIT}", "no node has a GPU of type h100", "2 x a100"),
        ("salloc -p short -t 2:00:00 true", "--time=0-02:00:00, and it allows 0-01:00:00", "it fits into: gpu"),
        (f"sbatch -p nosuch {SUBMIT}", "there is no partition of this name", "it fits into: gpu, short"),
    ],
)
def test_a_request_that_slurm_refuses_is_explained(
    scripted: LabCluster, command: str, reason: str, instead: str
) -> None:
    answer = scripted.user("ctl1", f"{command} && echo accepted", ok=False)

    assert "accepted" not in answer
    assert reason in answer
    assert instead in answer


@pytest.mark.parametrize(
    "options",
    [
        "", "--gpus=a100:4", "--gres=gpu:a100:2 -N 2", "--gpus-per-task=1 -n 4", "--mem=0", "--mem-per-cpu=100M -n 2",
        "-N 1-9", "--exclusive", "-p short,gpu -c 1", "-p short -t 1:00:00", "-O -n 99 -N 1", "--array=1-3",
        "--gres=gpu:1 : --gres=gpu:2", "-H --gpus=1", "--gres=gpu:2 --gpus-per-node=1",
    ],
)  # fmt: skip
def test_a_request_that_slurm_accepts_is_accepted_without_a_word(scripted: LabCluster, options: str) -> None:
    answer = scripted.user("ctl1", f"sbatch {options} {SUBMIT}")
    scripted.root("ctl1", "scancel --user=ubuntu")

    assert answer.startswith("Submitted batch job")
    assert len(answer.splitlines()) == 1


def test_who_has_no_account_reads_whom_to_ask(scripted: LabCluster) -> None:
    scripted.root("ctl1", "id stranger || useradd --create-home stranger")

    answer = scripted.root("ctl1", f"su - stranger -c 'sbatch {SUBMIT}'", ok=False)

    assert "you have no account in Slurm: ask help@example.com to add you to a group" in answer


@pytest.mark.parametrize(
    "options", ["--gpus=1", "--gpus-per-task=1 -n 2", "--ntasks-per-gpu=1 -n 2", "--gpus=1 --test-only"]
)
def test_a_spread_job_with_gpus_does_not_stop_slurmctld(scripted: LabCluster, options: str) -> None:
    before = scripted.root("ctl1", "systemctl show --property=MainPID,NRestarts slurmctld")

    answer = scripted.user("ctl1", f"sbatch --spread-job {options} {SUBMIT}")

    scripted.root("ctl1", "scancel --user=ubuntu")
    assert "--spread-job is left out" in answer
    assert scripted.root("ctl1", "systemctl show --property=MainPID,NRestarts slurmctld") == before

"""Where the examples run, and what is reported where they can't."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs._slurm_jobs.session import Session
from deepopsctl.node_programs._slurm_jobs.snapshot import SlurmSnapshot
from deepopsctl.node_programs.suites.validate_environment import examples
from tests.data.slurm_samples import node, partition

BY_NAME = {example.name: example for example in examples.EXAMPLES}


def results(snapshot: SlurmSnapshot, *tested: str) -> dict[str, tuple[str, str]]:
    """Status and message of the checks where no job is submitted."""
    made = examples.verify_examples("hpc", "/nowhere", tested, Session("environment", "abc", "ann"), snapshot)
    return {check["name"]: (check["status"], check["message"]) for check in made}


def snapshot(**changes: str) -> SlurmSnapshot:
    """A cluster of one node."""
    return SlurmSnapshot({}, {"gpu01": node(**changes)}, {"gpu": partition()}, {})


def test_a_node_that_is_busy_or_not_tested_gets_no_job() -> None:
    full = ("skip", "no node has room for a job")

    assert results(snapshot(CPUAlloc="8"), "gpu01") == results(snapshot(), "cn01") == dict.fromkeys(BY_NAME, full)
    # without GPUs there is no check of one
    assert results(snapshot(CPUAlloc="8", Gres="(null)"), "gpu01").keys() == BY_NAME.keys() - {"environment-gpu"}


def test_a_controller_that_does_not_answer_is_named() -> None:
    silent = Result("scontrol", 1, "", "Unable to contact slurm controller", 0.1)
    down = SlurmSnapshot({}, {}, {}, {"nodes": silent, "ping": silent})

    assert results(down)["environment-serial"] == (
        "skip", "slurmctld does not answer: Unable to contact slurm controller",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes", "limits", "fits"),
    [
        ("environment-multi-core", {}, {}, True),
        ("environment-multi-core", {"CPUAlloc": "7"}, {}, False),
        ("environment-multi-core", {}, {"MaxCPUsPerNode": "UNLIMITED"}, True),
        ("environment-multi-core", {}, {"MaxCPUsPerNode": "1"}, False),
        ("environment-serial", {"CPUAlloc": "7"}, {"MaxCPUsPerNode": "1"}, True),
        ("environment-gpu", {"AllocTRES": "cpu=2,gres/gpu=2"}, {}, False),
    ],
)
def test_a_job_goes_where_slurm_starts_it(
    name: str, changes: dict[str, str], limits: dict[str, str], fits: bool
) -> None:
    assert BY_NAME[name].fits(node(**changes), partition(**limits)) is fits


def test_options_come_before_the_script_and_its_arguments_behind_it() -> None:
    argv = BY_NAME["environment-checkpoint"].argv("/ex", ["--mem=100M"])

    assert argv == ["sbatch", "--parsable", "--mem=100M", *examples.SIGNAL, "/ex/checkpoint.sh", "40"]
    assert BY_NAME["environment-chain"].argv("/ex", ["--mem=100M"]) == ["bash", "/ex/chain.sh", "--mem=100M"]


START = "start {} from step {}\n".format


@pytest.mark.parametrize(
    ("output", "good"),
    [
        (f"{START(1, 0)}saved step 9\n{START(2, 9)}saved step 40\nended with status 0\n", True),
        (f"{START(1, 0)}saved step 9\n{START(2, 0)}saved step 40\nended with status 0\n", False),
        (f"{START(1, 0)}saved step 40\nended with status 0\n", False),
        (f"{START(1, 0)}saved step 9\n{START(2, 9)}saved step 40\n", False),
        ("", False),
    ],
)
def test_the_checkpoint_counts_only_if_a_start_went_on_from_it(output: str, good: bool) -> None:
    assert BY_NAME["environment-checkpoint"].evaluate({"checkpoint-7.out": output}, ["7"])[1] is good


def test_ids_of_jobs_are_read_without_the_cluster_s_name() -> None:
    session = Session("environment", "abc", "ann")

    assert session.submit(["echo", "jobs: 12 13"])[1] == ["12", "13"]
    assert session.submit(["echo", "12;cluster2"])[1] == ["12"]

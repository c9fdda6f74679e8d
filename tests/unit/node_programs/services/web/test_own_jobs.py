"""Jobs and nodes for the pages, from what Slurm prints; names of jobs are texts of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.services.web import own_jobs, views

BAR = "\x1f"
LIVE = (
    "7|PENDING|gpu|def-lab|1796000000|1796003600|1:00:00|0:00|2|4G|gpu:a100:1|1||Resources\n"
    "6|RUNNING|gpu|def-lab|1796000000|1796000010|1:00:00|5:00|2|4G|N/A|1|gpu01|None\n"
)
JOB = "5 COMPLETED gpu def-lab 1796000000 1796000100 100 2 4G cpu=2,mem=4G,gres/gpu=1 01:40.000 - 0:0 a|<b>\x07"
BATCH = "5.batch COMPLETED - def-lab 1796000000 1796000100 100 2 - cpu=2 01:40.000 1048576K 0:0 batch"
STEP = "5.0 COMPLETED - def-lab 1796000000 1796000100 100 2 - cpu=2 01:40.000 2097152K 0:0 x"
ENDED = "".join(line.replace(" ", BAR) + "\n" for line in (JOB, BATCH, STEP))
NODES = (
    "NodeName=gpu01 CPUAlloc=2 CPUTot=16 Gres=gpu:a100:4(S:0) GresUsed=gpu:a100:1(IDX:0) State=MIXED Partitions=gpu\n"
    "NodeName=gpu02 CPUAlloc=0 CPUTot=16 Gres=gpu:a100:4(S:0) GresUsed=gpu:a100:0 State=IDLE+DRAIN Partitions=gpu\n"
)


def slurm(argv: Sequence[str], *_: Any, **__: Any) -> Result:
    words = " ".join(argv)
    if argv[0] == "sacct":
        text = ENDED
    elif "%j" in words:
        text = "7|of | two\x1b[31m\n6|runs\n"
    elif argv[0] == "squeue":
        text = LIVE if "--me" in argv else "gpu\ngpu\n"
    elif "node" in argv:
        text = NODES
    elif "partition" in argv:
        text = "PartitionName=gpu State=UP MaxTime=02:00:00\n"
    else:
        text = ""
    return Result(argv[0], 0, text, "", 0.0)


def silent(argv: Sequence[str], *_: Any, **__: Any) -> Result:
    return Result(argv[0], 1, "", "Unable to contact slurm controller", 0.0)


def test_jobs_are_those_that_wait_run_and_have_ended_with_what_they_used() -> None:
    page = views.jobs(own_jobs.listed(slurm, 7))

    assert [job["id"] for job in page["waiting"]] == ["7"]
    assert page["waiting"][0]["name"] == "of | two?[31m"
    assert [job["id"] for job in page["running"]] == ["6"]
    (job,) = page["ended"]
    assert (job["cpu"]["percent"], job["memory"]["percent"], job["gpus"]) == (50, 50, 1)
    assert job["name"] == "a|<b>?"


def test_free_gpus_are_those_of_nodes_that_take_jobs() -> None:
    page = views.cluster(own_jobs.cluster(slurm))

    assert page["gpus"] == [{"type": "a100", "count": 8, "free": 3}]
    (partition,) = page["partitions"]
    assert {key: partition[key] for key in ("nodes", "nodes_down", "cpus_free", "waiting")} == {
        "nodes": 2, "nodes_down": 1, "cpus_free": 14, "waiting": 2,
    }  # fmt: skip


def test_a_controller_that_does_not_answer_is_said() -> None:
    assert "Unable to contact" in views.jobs(own_jobs.listed(silent, 7))["trouble"]
    assert "Unable to contact" in views.cluster(own_jobs.cluster(silent))["trouble"]
    assert "Unable to contact" in views.one_job(own_jobs.explained("7", silent))["trouble"]

"""Jobs and nodes for the pages, from what Slurm prints; names of jobs are texts of users."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.commands.job_report import summary
from deepopsctl.node_programs.commands.job_report.summary import GpuUse, Summary
from deepopsctl.node_programs.services.web import own_jobs, views
from deepopsctl.node_programs.services.web.offer import Offer, Partition

BAR = "\x1f"
LIVE = (
    "7|alice|PENDING|gpu|def-lab|1796000000|1796003600|1:00:00|0:00|2|4G|gpu:a100:1|1||Resources\n"
    "6|alice|RUNNING|gpu|def-lab|1796000000|1796000010|1:00:00|5:00|2|4G|N/A|1|gpu01|None\n"
)
GPU = summary.write(Summary(gpus=(GpuUse("gpu01", "0", 0.25, 1.0, 2e9, 8e9),)))
TRES = "cpu=2,mem=4G,gres/gpu=1"
JOB = f"5 5 alice def-lab gpu COMPLETED 0:0 1796000000 1796000100 100 60 2 1 gpu01 {TRES} 01:40.000 - {GPU}"
STEP = "5.0 5.0 - def-lab - COMPLETED 0:0 1796000000 1796000100 100 - 2 1 gpu01 cpu=2 01:40.000 mem=2G -"
ENDED = "".join(line.replace(" ", BAR) + "\n" for line in (JOB, STEP))
NODES = (
    "NodeName=gpu01 CPUAlloc=2 CPUTot=16 Gres=gpu:a100:4(S:0) GresUsed=gpu:a100:1(IDX:0) State=MIXED Partitions=gpu\n"
    "NodeName=gpu02 CPUAlloc=0 CPUTot=16 Gres=gpu:a100:4(S:0) GresUsed=gpu:a100:0 State=IDLE+DRAIN Partitions=gpu\n"
)


def slurm(argv: Sequence[str], *_: Any, **__: Any) -> Result:
    words = " ".join(argv)
    if argv[0] == "sacct":
        answers = {"End": f"5{BAR}1796000100\n", "JobName": f"5{BAR}a|<b>\x07\n", "AdminComment": ENDED}
        text = answers[argv[-1].rpartition(",")[2]]
    elif argv[0] == "sbatch":
        return Result(argv[0], 0, "", f"sbatch: Job 9 to start at {int(time.time()) + 7300} using 1 processors", 0.0)
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
    assert [job[key]["percent"] for key in ("cpu", "memory", "gpu", "gpu_memory")] == [50, 50, 25, 25]
    assert job["cpu"]["text"] == "1 core of 2 cores"
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
    assert "Unable to contact" in views.one_job(own_jobs.explained("7", "alice", silent))["trouble"]


def test_the_wait_for_a_gpu_of_each_type_is_slurms_own_plan() -> None:
    gpu = Partition("gpu", True, 30, 16, 64, {"a100": 4, "": 2})
    waits = own_jobs.waits(Offer((gpu, Partition("cpu", False, None, 16, 64)), ("def-lab",)), slurm)

    page = views.cluster({"waits": waits})["waits"]
    assert [(each["partition"], each["what"], each["minutes"]) for each in page] == [
        ("gpu", "1 GPU a100", 30), ("gpu", "1 GPU", 30), ("cpu", "1 core", 60),
    ]  # fmt: skip
    assert {each["text"] for each in page} == {"in 2h 01m"}
    assert "refused" in views.cluster({"waits": [{**waits[0], "start": None}]})["waits"][0]["text"]

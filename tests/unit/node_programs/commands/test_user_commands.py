"""`seff` and `partition-stats`, from what Slurm 24.11 prints."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deepopsctl.node_programs.commands.job_report import records
from deepopsctl.node_programs.commands.job_report.asking import UnansweredError
from deepopsctl.node_programs.commands.user_commands import partition_stats, seff
from tests.data.slurm_samples import JOB

STEP = tuple({0: "4711.0", 16: "cpu=04:10:00,mem=3145728K,vmem=0"}.get(place, value) for place, value in enumerate(JOB))


class Accounting:
    """sacct with these rows, for alice on the cluster hpc."""

    def __init__(self, *rows: Sequence[str]) -> None:
        self.rows = rows

    def __call__(self, argv: Sequence[str]) -> str:
        answers = {
            f"--format={','.join(records.FIELDS)}": "\n".join(records.DELIMITER.join(row) for row in self.rows),
            "--format=Cluster,Group": records.DELIMITER.join(("hpc", "curie")) + "\n",
        }
        return answers.get(argv[-1], "")


def test_seff_prints_the_lines_that_users_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert seff.main(["4711"], Accounting(JOB, STEP)) == 0

    assert capsys.readouterr().out.splitlines() == [
        "Job ID: 4711",
        "Cluster: hpc",
        "User/Group: alice/curie",
        "State: COMPLETED (exit code 0)",
        "Cores: 32",
        "CPU Utilized: 04:12:00",
        "CPU Efficiency: 6.56% of 2-16:00:00 core-walltime",
        "Job Wall-clock time: 02:00:00",
        "Memory Utilized: 3.00 GB",
        "Memory Efficiency: 2.34% of 128.00 GB",
    ]


def test_seff_says_what_slurm_does_not_know_and_what_killed_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    killed = {5: "OUT_OF_MEMORY", 6: "0:125", 9: "0", 15: "00:00:00"}
    rows = [
        tuple({**killed, **more}.get(place, value) for place, value in enumerate(JOB))
        for more in ({}, {0: "4711.batch", 16: "mem=0"})
    ]

    assert seff.main(["4711"], Accounting(*rows)) == 0

    assert capsys.readouterr().out.splitlines()[3:] == [
        "State: OUT_OF_MEMORY (exit code 0)",
        "Cores: 32",
        "CPU Utilized: unknown",
        "CPU Efficiency: unknown of 00:00:00 core-walltime",
        "Job Wall-clock time: 00:00:00",
        "Memory Utilized: unknown",
        "Memory Efficiency: unknown of 128.00 GB",
        "WARNING: it was killed because it needed more memory than 128 GiB: ask for more, for example --mem=256G.",
    ]


def test_seff_of_a_task_of_an_array_on_two_nodes_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    running = {0: "4711_3", 1: "4714", 5: "RUNNING", 8: "Unknown", 12: "2"}

    seff.main(["4711_3"], Accounting(tuple(running.get(place, value) for place, value in enumerate(JOB))))

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Job ID: 4714", "Array Job ID: 4711_3"]
    assert lines[5:7] == ["Nodes: 2", "Cores per node: 16"]
    assert "WARNING: Efficiency statistics may be misleading for RUNNING jobs." in lines


def test_seff_of_a_job_that_waits_and_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {5: "PENDING", 7: "Unknown", 9: "0", 11: "0"}

    assert seff.main(["4711"], Accounting(tuple(waiting.get(place, value) for place, value in enumerate(JOB)))) == 0
    assert "Efficiency not available for jobs in the PENDING state." in capsys.readouterr().out
    assert seff.main(["4711"], Accounting()) == 1


NODES = [
    ("gpu*", "2-00:00:00", "gpu01", "idle", "gpu:a100:4", "gpu:a100:0(IDX:N/A)"),
    ("gpu*", "2-00:00:00", "gpu02", "mixed", "gpu:a100:4", "gpu:a100:3(IDX:0-2)"),
    ("gpu*", "2-00:00:00", "gpu03", "drained", "gpu:a100:4", "gpu:a100:0(IDX:N/A)"),
    ("gpu*", "2-00:00:00", "gpu04", "idle*", "gpu:h100:8", "gpu:h100:0(IDX:N/A)"),
    ("cpu", "infinite", "cpu01", "idle", "(null)", "gpu:0"),
]


class Slurm:
    """sinfo and squeue."""

    def __call__(self, argv: Sequence[str]) -> str:
        if argv == partition_stats.JOBS:
            return "gpu|RUNNING\ngpu|PENDING\ncpu,gpu|PENDING\n"
        widths = [int(column.rpartition(":")[2]) for column in argv[-1].split(",")]
        return "\n".join("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in NODES)


def test_partition_stats_counts_free_nodes_and_gpus_and_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert partition_stats.main([], Slurm()) == 0

    assert capsys.readouterr().out.splitlines() == [
        "Partition    Max time  Nodes  Free  GPUs free/total      Running  Queued",
        "gpu*       2-00:00:00      4     1  a100 5/12, h100 0/8        1       2",
        "cpu          infinite      1     1  -                          0       1",
    ]


def test_partition_stats_of_an_unknown_partition_or_without_slurm_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def down(argv: Sequence[str]) -> str:
        raise UnansweredError("sinfo: Unable to contact slurm controller")

    assert partition_stats.main(["debug"], Slurm()) == 1
    assert partition_stats.main([], down) == 1
    assert "Unable to contact slurm controller" in capsys.readouterr().err

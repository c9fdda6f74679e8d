"""What a job finds at the end of its own output, and files that nothing must be written to."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.node_programs.commands.job_report.ending import (
    Ending,
    _ending,
    _is_first,
    append,
    describe,
    figures,
    read_job,
)

ME = getpass.getuser()
PROM = """\
# HELP deepops_job_cpus x
deepops_job_info{jobid="12",user="alice",account="a",partition="p"} 1
deepops_job_cpus{jobid="12"} 4
deepops_job_cpus{jobid="112"} 64
deepops_job_cpu_seconds_total{jobid="12"} 90.5
deepops_job_memory_peak_bytes{jobid="12"} 1073741824
deepops_job_memory_requested_bytes{jobid="12"} 4294967296
deepops_job_gpu{jobid="12",gpu="0",uuid=""} 1
"""
JOB = Ending("12", "alice", "/home/alice/slurm-12.out", "gpu01", 1, 60.0)
TOLD = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_WORK_DIR": "/home/alice",
    "SLURMD_NODENAME": "gpu01",
}


class TestTheText:
    def test_has_what_the_node_saw_of_this_job(self) -> None:
        assert describe(JOB, figures(PROM, "12")) == (
            "---- job 12 on gpu01: 1m 00s\n"
            "CPUs    1.5 of 4 (38 %)\n"
            "Memory  1 GiB of 4 GiB (25 %)\n"
            "More, with GPUs and advice: job-report 12\n"
        )

        # as Python writes a time that is nearly nothing
        assert figures('deepops_job_cpu_seconds_total{jobid="12"} 5e-05', "12").popitem()[1] == 0.00005
        assert "gpu01, the first of 8 nodes" in describe(replace(JOB, node_count=8), figures(PROM, "12"))

    @pytest.mark.parametrize("text", ["", "rubbish", 'deepops_job_cpus{jobid="12"} x', PROM.replace('"12"', '"13"')])
    def test_is_empty_where_nobody_looked(self, text: str) -> None:
        assert describe(JOB, figures(text, "12")) == ""


class TestWhoWrites:
    def test_the_first_node_alone(self) -> None:
        lists = {"gpu01": True, "gpu[01-04]": True, "gpu[02-04]": False, "cpu1,gpu01": False, "gpu0": False, "": False}
        gpu01 = {"SLURMD_NODENAME": "gpu01"}

        assert {nodes: _is_first({**gpu01, "SLURM_NODELIST": nodes}) for nodes in lists} == lists

    def test_where_slurm_says_that_the_output_is_whatever_the_jobs_name_is(self) -> None:
        name = "x BatchFlag=0 StdOut=/etc/passwd\n   StdOut=/etc/shadow"
        text = (
            f"JobId=12 JobName={name}\n   UserId=alice(1000) GroupId=alice(1000)\n"
            "   NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n   Partition=gpu AllocNode:Sid=ctl1:5 BatchFlag=1 Reboot=0\n"
            "   StdErr=/dev/null\n   StdIn=/dev/null\n   StdOut=/home/alice/a b.out\n   TresPerJob=gres/gpu:1\n"
        )

        result = _ending(TOLD, read_job(text))
        assert result is not None
        assert result.output == "/home/alice/a b.out"

    def test_for_a_batch_job_alone(self) -> None:
        batch = {"StdOut": "slurm-12.out", "BatchFlag": "1"}

        result = _ending(TOLD, batch)
        assert result is not None
        assert result.output == "/home/alice/slurm-12.out"
        assert _ending(TOLD, {**batch, "BatchFlag": "0"}) is None
        assert _ending(TOLD, {"BatchFlag": "1"}) is None
        assert _ending({**TOLD, "SLURM_JOB_WORK_DIR": "x"}, batch) is None


class TestTheOutput:
    def test_gets_it_at_its_end_and_is_never_made(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        assert not append(str(path), "ours\n", ME)
        assert list(tmp_path.iterdir()) == []
        path.write_text("the job's own\n")

        assert append(str(path), "ours\n", ME)
        assert not append(str(path), "ours\n", "nobody-of-that-name")
        assert path.read_text() == "the job's own\nours\n"

    def test_is_never_reached_through_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "other").write_text("")
        (tmp_path / "out").symlink_to("other")

        assert not append(str(tmp_path / "out"), "ours\n", ME)
        assert (tmp_path / "other").read_text() == ""

    def test_is_no_pipe_and_no_device(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "out")

        assert not append(str(tmp_path / "out"), "ours\n", ME)
        assert not append("/dev/null", "ours\n", ME)
        assert not append(str(tmp_path), "ours\n", ME)

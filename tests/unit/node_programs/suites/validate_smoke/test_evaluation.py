"""Verdicts on what jobs tried: confinement, GPUs, refusals, clocks, munge."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs._slurm_jobs import confinement as slurm_confinement
from deepopsctl.node_programs.suites.validate_smoke import clock, confinement, gpus, munge, oversized_jobs

CGROUPS = {
    "TaskPlugin": "task/cgroup,task/affinity", "ConstrainCores": "yes", "ConstrainDevices": "yes",
    "ConstrainRAMSpace": "yes",
}  # fmt: skip


class TestConfigured:
    @pytest.mark.parametrize("key", ["ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace"])
    def test_one_constraint_missing_fails_and_is_named(self, key: str) -> None:
        check = confinement.configured({**CGROUPS, key: "no"}, "hpc")

        assert check["status"] == "fail"
        assert f"{key}=no" in check["message"]
        assert confinement.configured(CGROUPS, "hpc")["status"] == "pass"

    def test_a_cluster_without_cgroups_is_warned_of(self) -> None:
        check = confinement.configured({"TaskPlugin": "task/affinity", "ProctrackType": "proctrack/linuxproc"}, "hpc")

        assert check["status"] == "warn"
        assert "proctrack/linuxproc" in check["message"]


class TestCores:
    @pytest.mark.parametrize(
        ("own", "allocated", "others", "status"),
        [
            ([3], "1", {"0": "EINVAL", "1": "EINVAL"}, "pass"),
            ([3, 7], "2", {"0": "EINVAL"}, "pass"),
            ([3], "1", {"0": "EINVAL", "1": "OK"}, "fail"),
            ([0, 1, 2, 3], "1", {}, "fail"),
            ([0], "1", {}, "skip"),
        ],
    )
    def test_a_job_keeps_to_its_cpus(self, own: list[int], allocated: str, others: dict[str, str], status: str) -> None:
        tried = {"own": own, "allocated": allocated, "others": others}

        assert confinement.cores("gpu01", tried)["status"] == status


class TestMemory:
    OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0"

    @pytest.mark.parametrize(
        ("held", "output", "resident", "end", "status"),
        [
            ([0, 50, 90], OOM, None, False, "pass"),
            ([0, 50, 90], "srun: error: gpu01: task 0: Out Of Memory", None, False, "pass"),
            # swapped instead
            ([0, 100, 300], "", 98, True, "pass"),
            # never, or late
            ([0, 100, 300], "", None, True, "fail"),
            ([0, 100, 250], OOM, None, False, "fail"),
            # another reason is not an evidence
            ([0, 50], "srun: error: Node failure on gpu01", None, False, "fail"),
            # several nodes share a job, and its output
            ([0, 50], f"{OOM}\nsrun: error: gpu[01-02]: tasks 0-1: Out Of Memory", None, False, "pass"),
            ([0, 50], "srun: error: gpu[02-03]: tasks 1-2: Out Of Memory", None, False, "fail"),
            ([0], f"{OOM}\nsrun: error: gpu01: task 0: Exited with exit code 1", None, False, "fail"),
        ],
    )
    def test_a_job_is_stopped_near_its_limit(
        self, held: list[int], output: str, resident: int | None, end: bool, status: str
    ) -> None:
        lines = [{"held": step, "resident": resident or step, "end": False} for step in held]

        check = confinement.memory("gpu01", [*lines[:-1], {**lines[-1], "end": end}], output)

        assert check["status"] == status


class TestGpus:
    @pytest.mark.parametrize(
        ("with_one", "with_none", "status"),
        [
            ({"nvidia0": "ENXIO", "nvidia1": "EPERM"}, {"nvidia0": "EPERM", "nvidia1": "EPERM"}, "pass"),
            ({"nvidia0": "OK"}, {"nvidia0": "EPERM"}, "pass"),
            ({"nvidia0": "OK", "nvidia1": "OK"}, {"nvidia0": "EPERM", "nvidia1": "EPERM"}, "fail"),
            ({"nvidia0": "ENXIO", "nvidia1": "ENXIO"}, {}, "fail"),
            ({"nvidia0": "EPERM", "nvidia1": "EPERM"}, {}, "fail"),
            ({"nvidia0": "OK"}, {"nvidia0": "OK"}, "fail"),
            # one that was opened stays open where another was not
            ({"nvidia0": "OK", "nvidia1": "OK", "nvidia2": "EACCES"}, {}, "fail"),
            ({}, {}, "fail"),
        ],
    )
    def test_a_job_opens_its_own_gpu_and_no_other(
        self, with_one: dict[str, str], with_none: dict[str, str], status: str
    ) -> None:
        assert slurm_confinement.gpus("smoke", "gpu-confinement", "gpu01", with_one, with_none)["status"] == status

    @pytest.mark.parametrize(
        ("with_one", "with_none"),
        [
            ({"nvidia0": "EACCES", "nvidia1": "EACCES"}, {"nvidia0": "EACCES", "nvidia1": "EACCES"}),
            ({"nvidia0": "OK", "nvidia1": "EACCES"}, {"nvidia0": "EPERM", "nvidia1": "EACCES"}),
            ({"nvidia0": "EPERM", "nvidia1": "EACCES"}, {}),
        ],
    )
    def test_what_the_file_mode_refuses_says_nothing_of_the_cgroup(
        self, with_one: dict[str, str], with_none: dict[str, str]
    ) -> None:
        result = slurm_confinement.gpus("smoke", "gpu-confinement", "gpu01", with_one, with_none)
        assert result["status"] == "warn"
        assert "could open" not in result["message"]
        assert "/dev/nvidia1" in result["message"]

    def job(self, index: str, visible: str = "0") -> dict[str, Any]:
        return {"env": {"SLURM_STEP_GPUS": index, "CUDA_VISIBLE_DEVICES": visible}, "gpus": {}}

    @pytest.mark.parametrize(
        ("first", "visible", "second", "status"),
        # each is number 0 to its job; a job has to be given exactly one
        [("0", "0", "1", "pass"), ("1", "0", "1", "fail"), ("0", "", "1", "fail"), ("0", "0,1", "1", "fail")],
    )
    def test_two_jobs_have_two_gpus(self, first: str, visible: str, second: str, status: str) -> None:
        assert gpus.assignment("gpu01", self.job(first, visible), self.job(second), 2)["status"] == status

    def test_without_slurms_index_the_device_files_tell_which_gpu_it_was(self) -> None:
        first = {"env": {"CUDA_VISIBLE_DEVICES": "0"}, "gpus": {"nvidia0": "OK", "nvidia1": "EPERM"}}
        second = {"env": {"CUDA_VISIBLE_DEVICES": "0"}, "gpus": {"nvidia0": "EPERM", "nvidia1": "ENXIO"}}

        assert (slurm_confinement.device(first), slurm_confinement.device(second)) == ("0", "1")
        assert gpus.assignment("gpu01", first, second, 2)["status"] == "pass"
        assert gpus.assignment("gpu01", first, first, 2)["status"] == "fail"

    def test_one_free_gpu_of_several_is_tested_alone_and_said(self) -> None:
        check = gpus.assignment("gpu01", self.job("3"), {}, 8)

        assert check["status"] == "pass"
        assert "only one GPU was free" in check["message"]


PARTITION = {"PartitionName": "gpu", "MaxTime": "02:00:00"}
NODES = ({"CPUTot": "64", "RealMemory": "200000", "Gres": "gpu:h100:8"}, {"CPUTot": "32", "RealMemory": "1000"})
MADE = {"credential": "MUNGE:x:", "error": ""}


class TestOverAsking:
    def test_one_more_than_the_best_node_has_is_asked_for(self) -> None:
        asked = {entry.what: " ".join(entry.options) for entry in oversized_jobs.requests(PARTITION, NODES)}

        assert asked == {
            "nodes": "--nodes=3",
            "cpus": "--nodes=1 --ntasks=1 --cpus-per-task=65",
            "memory": "--nodes=1 --ntasks=1 --mem=201024M",
            "gpus": "--nodes=1 --ntasks=1 --gres=gpu:9",
            "time": "--time=03:00:00",
        }

    def test_without_gpus_one_is_too_many(self) -> None:
        requests = oversized_jobs.requests({"MaxTime": "UNLIMITED"}, [{"CPUTot": "4", "RealMemory": "1000"}])

        assert {entry.what: entry.options for entry in requests}["gpus"][-1] == "--gres=gpu:1"
        assert "no time limit" in {entry.what: entry.reason for entry in requests}["time"]

    @pytest.mark.parametrize(
        ("error", "pending", "enforced", "status"),
        [
            ("Requested node configuration is not available", "", "NO", "pass"),
            # another reason is not an evidence
            ("Invalid account or account/partition combination", "", "NO", "skip"),
            ("", "", "NO", "fail"),
            ("", "Resources", "NO", "fail"),
            # accepted for ever: a warning where limits are not enforced
            *(("", pending, "NO", "warn") for pending in ("PartitionConfig", "PartitionTimeLimit")),
            *(("", "PartitionTimeLimit", enforced, "fail") for enforced in ("ALL", "ANY")),
        ],
    )
    def test_only_a_refusal_in_slurms_words_passes_and_keeps_them(
        self, error: str, pending: str, enforced: str, status: str
    ) -> None:
        asked = oversized_jobs.requests(PARTITION, NODES)[0]
        failure = f"sbatch: error: Batch job submission failed: {error}" if error else ""
        answer = Result("sbatch", int(bool(error)), "7", failure, 0.1)

        check = oversized_jobs.evaluate(asked, "gpu", answer, {"EnforcePartLimits": enforced}, pending)

        assert check["status"] == status
        assert error in check["message"]


class TestClock:
    def lead(self, before: float, remote: float, after: float) -> Any:
        return clock.offset({"before": before, "remote": str(remote), "after": after})

    @pytest.mark.parametrize(
        ("shift", "status"), [(0.9, "pass"), (-0.9, "pass"), (1.2, "warn"), (-5, "warn"), (59, "warn"), (61, "fail")]
    )
    def test_what_is_off_by_a_second_warns_and_by_a_minute_fails(self, shift: float, status: str) -> None:
        lead = clock.between(self.lead(100, 100.01 + shift, 100.02), self.lead(100, 100.01, 100.02))

        assert clock.evaluate("gpu01", lead, "ctl1")["status"] == status

    def test_the_direction_is_reported_and_a_slow_round_trip_is_no_evidence(self) -> None:
        lead = clock.between(self.lead(100, 103, 105), self.lead(100, 100, 100))

        assert clock.evaluate("gpu01", lead, "ctl1")["status"] == "pass"
        assert lead.text() == "+0.500 ± 2.500"
        assert "behind ctl1's" in clock.evaluate("gpu01", clock.Offset(-70, -69), "ctl1")["message"]
        assert "ahead of ctl1's" in clock.evaluate("gpu01", clock.Offset(69, 70), "ctl1")["message"]

    @pytest.mark.parametrize("reading", [{}, {"before": 1, "remote": "", "after": 2}, {"before": 1, "after": 2}])
    def test_without_a_reading_nothing_is_claimed(self, reading: dict[str, Any]) -> None:
        assert clock.offset(reading) is None
        assert clock.evaluate("gpu01", None, "ctl1")["status"] == "skip"


class TestMunge:
    @pytest.mark.parametrize(
        ("made", "here", "there", "status"),
        [
            (MADE, "Success (0)", "Success (0)", "pass"),
            (MADE, "Success (0)", "", "pass"),
            (MADE, "Invalid credential", "", "fail"),
            (MADE, "Success (0)", "Expired credential (15)", "fail"),
            ({"credential": "", "error": "munged is not running"}, "", "", "fail"),
        ],
    )
    def test_both_directions_count(self, made: dict[str, str], here: str, there: str, status: str) -> None:
        assert munge.across("gpu01", made, here, there, "ctl1")["status"] == status

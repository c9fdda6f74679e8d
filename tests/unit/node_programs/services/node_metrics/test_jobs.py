"""The collector of jobs: control groups of both versions, the job map, what Slurm is asked, and hostile files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from deepopsctl.gpus.gres import device_names
from deepopsctl.model.cluster import GpuGroup, Gpus, MigSlices
from deepopsctl.node_programs.services.node_metrics import cgroups, jobmap
from deepopsctl.node_programs.services.node_metrics.jobmap import Gpu, Job
from deepopsctl.node_programs.services.node_metrics.jobs import METRICS, Jobs, lines
from deepopsctl.node_programs.services.node_metrics.samples import render
from deepopsctl.slurm.job_hooks import refused_with_job_map, with_job_map
from tests.support.files import write_files

GIB = 1 << 30


def second(root: Path, job: str, *, cpu: int = 0, anon: int = 0, place: str = "system.slice/slurmstepd.scope") -> None:
    write_files(
        root,
        {
            "cgroup.controllers": "cpuset cpu memory\n",
            f"{place}/{job}/cpu.stat": f"usage_usec {cpu}\nuser_usec 1\nsystem_usec 2\n",
            f"{place}/{job}/memory.stat": f"anon {anon}\nfile 9000000\nshmem 4096\n",
            f"{place}/{job}/memory.max": f"{4 * GIB}\n",
            f"{place}/{job}/cpuset.cpus": "0-3,8\n",
        },
    )


def first(root: Path, job: str, limit: str = "1073741824") -> None:
    write_files(
        root,
        {
            f"cpuacct/slurm/uid_1000/{job}/cpuacct.usage": "2500000000\n",
            f"memory/slurm/uid_1000/{job}/memory.stat": "rss 1\ntotal_cache 900\ntotal_rss 5000\ntotal_shmem 96\n",
            f"memory/slurm/uid_1000/{job}/memory.limit_in_bytes": f"{limit}\n",
            f"cpuset/slurm/uid_1000/{job}/cpuset.cpus": "1\n",
        },
    )


class TestControlGroups:
    def test_of_both_versions_tell_time_memory_without_the_page_cache_and_limits(self, tmp_path: Path) -> None:
        second(tmp_path / "v2", "job_12", cpu=2_500_000, anon=1_000_000)
        first(tmp_path / "v1", "job_12")

        assert cgroups.find(str(tmp_path / "v2")) == {"12": cgroups.Usage(2.5, 1_004_096, 4 * GIB, 5)}
        assert cgroups.find(str(tmp_path / "v1")) == {"12": cgroups.Usage(2.5, 5096, GIB, 1)}
        # without a limit
        first(tmp_path / "v1", "job_12", limit="9223372036854771712")
        (tmp_path / "v2/system.slice/slurmstepd.scope/job_12/memory.max").write_text("max\n")
        assert [cgroups.find(f"{tmp_path}/{version}")["12"].memory_limit for version in ("v1", "v2")] == [None, None]

    @pytest.mark.parametrize(
        "place", ["system.slice/n1_slurmstepd.scope", "slurmstepd.scope", "hpc.slice/slurmstepd.scope"]
    )
    def test_are_found_where_other_builds_of_slurm_have_them(self, tmp_path: Path, place: str) -> None:
        second(tmp_path, "job_12", place=place)

        assert set(cgroups.find(str(tmp_path))) == {"12"}

    def test_that_go_between_two_looks_leave_what_is_known(self, tmp_path: Path) -> None:
        second(tmp_path, "job_12")
        for name in ("memory.stat", "cpu.stat"):
            (tmp_path / "system.slice/slurmstepd.scope/job_12" / name).unlink()

        assert cgroups.find(str(tmp_path)) == {"12": cgroups.Usage(None, None, 4 * GIB, 5)}

    @pytest.mark.parametrize("name", ["job_", "job_x", "job_12 ", "job_12345678901", "step_0", "s1", "job_1\n2"])
    def test_of_other_names_are_no_jobs(self, tmp_path: Path, name: str) -> None:
        second(tmp_path, name)

        assert cgroups.find(str(tmp_path)) == {}

    @pytest.mark.parametrize("cpus", ["", "a-b", "1-2-3", "-", "0x1"])
    def test_with_nonsense_in_them_tell_nothing(self, tmp_path: Path, cpus: str) -> None:
        second(tmp_path, "job_12")
        directory = tmp_path / "system.slice/slurmstepd.scope/job_12"
        (directory / "cpuset.cpus").write_text(cpus)
        (directory / "cpu.stat").write_bytes(b"usage_usec \xff\nusage_usec\n\n")
        (directory / "memory.stat").write_text("anon -5\n")

        assert cgroups.find(str(tmp_path)) == {"12": cgroups.Usage(None, None, 4 * GIB, None)}


PROLOG = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_ACCOUNT": "phys",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_GPUS": "0,2",
}


def places(tmp_path: Path) -> tuple[str, str]:
    """The directories of the map, and of a file of each GPU for DCGM."""
    return str(tmp_path / "jobs"), str(tmp_path / "gpus")


class TestTheJobMap:
    def begin(self, tmp_path: Path, **reported: str) -> None:
        environment = {**PROLOG, **{f"SLURM_JOB_{key}": value for key, value in reported.items()}}
        jobmap.begin(jobmap.from_environment(environment, (), {"0": Gpu("0", "GPU-a")}), *places(tmp_path))

    def test_has_what_the_prolog_was_told(self, tmp_path: Path) -> None:
        self.begin(tmp_path, SLUID="sEKNKTV3WPV500")

        assert jobmap.load(places(tmp_path)[0]) == {
            "12": Job("12", "alice", "phys", "gpu", "sEKNKTV3WPV500", (Gpu("0", "GPU-a"), Gpu("2", "")))
        }
        # Slurm may hide from others who has which job
        assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700

    def test_forgets_a_job_that_ends_and_no_other(self, tmp_path: Path) -> None:
        self.begin(tmp_path)
        self.begin(tmp_path, ID="9", GPUS="2")
        # a file of each GPU, for DCGM
        assert {path.name: path.read_text() for path in (tmp_path / "gpus").iterdir()} == {"0": "12\n", "2": "9\n12\n"}
        for number in ("12", "404"):
            jobmap.end(number, *places(tmp_path))

        assert set(jobmap.load(places(tmp_path)[0])) == {"9"}
        assert {path.name: path.read_text() for path in (tmp_path / "gpus").iterdir()} == {"2": "9\n"}

    def test_keeps_the_gpus_of_two_jobs_that_start_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = jobmap.load
        other = threading.Thread(target=self.begin, args=(tmp_path,), kwargs={"ID": "9", "GPUS": "7"})

        def load_while_another_begins(directory: str) -> dict[str, Job]:
            monkeypatch.setattr(jobmap, "load", load)
            known = load(directory)
            other.start()
            # it waits for this one
            other.join(0.5)
            return known

        monkeypatch.setattr(jobmap, "load", load_while_another_begins)
        self.begin(tmp_path)
        other.join()

        assert {path.name for path in (tmp_path / "gpus").iterdir()} == {"0", "2", "7"}

    @pytest.mark.parametrize("number", ["", "../../etc/passwd", "12\n", "1.2", "12345678901", "*"])
    def test_takes_no_number_that_is_none(self, tmp_path: Path, number: str) -> None:
        with pytest.raises(ValueError, match="SLURM_JOB_ID"):
            self.begin(tmp_path, ID=number)

        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("devices", ["", "../x", "0/1", "a,b", ",,", "9999"])
    def test_takes_no_gpu_that_is_none(self, tmp_path: Path, devices: str) -> None:
        self.begin(tmp_path, GPUS=devices)

        assert jobmap.load(places(tmp_path)[0])["12"].gpus == ()
        assert list((tmp_path / "gpus").iterdir()) == []

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "12", '{"number": 1}', '{"gpus": [1]}', '{"gpus": [], "x": 1}', "\0"]
    )
    def test_survives_a_file_that_somebody_damaged(self, tmp_path: Path, text: str) -> None:
        self.begin(tmp_path)
        (tmp_path / "jobs/13").write_text(text)

        assert set(jobmap.load(places(tmp_path)[0])) == {"12"}

    def test_is_swept_of_jobs_whose_epilog_never_ran(self, tmp_path: Path) -> None:
        self.begin(tmp_path)
        self.begin(tmp_path, ID="9", GPUS="1")
        self.begin(tmp_path, ID="10")
        long_ago = time.time() - 2 * jobmap.YOUNG_S
        for name in ("12", "9"):
            os.utime(tmp_path / "jobs" / name, (long_ago, long_ago))

        # 12 runs, 10 is about to start, 9 is of a node that crashed
        assert jobmap.sweep(["12"], *places(tmp_path)) == ["9"]
        assert set(jobmap.load(places(tmp_path)[0])) == {"10", "12"}
        assert {path.name for path in (tmp_path / "gpus").iterdir()} == {"0", "2"}

    def test_knows_gpus_by_the_number_of_their_device_file(self, tmp_path: Path) -> None:
        information = "Model: \t\t NVIDIA H100\nIRQ:   \t\t 42\nGPU UUID: \t GPU-4f-{}\nDevice Minor: \t {}\n"
        files = {
            "0000:1b:00.0/information": information.format("a", 3),
            "0000:2b:00.0/information": information.format("b", 0),
        }
        write_files(tmp_path, {**files, "0000:3b:00.0/other": ""})

        assert jobmap.gpus_of_driver(str(tmp_path)) == {"3": Gpu("0", "GPU-4f-a"), "0": Gpu("1", "GPU-4f-b")}

    def test_has_gpus_by_the_names_that_exporters_have_for_them(self) -> None:
        # gres.conf: a GPU, then three slices of another; the driver counts the other way round
        devices, driver = ("0", "1.7", "1.8", "1.13"), {"0": Gpu("1", "GPU-b"), "1": Gpu("0", "GPU-a")}

        result = jobmap.from_environment({**PROLOG, "SLURM_JOB_GPUS": "0,2,3,9"}, devices, driver)

        assert result.gpus == (Gpu("1", "GPU-b"), Gpu("0.8"), Gpu("0.13"), Gpu("9"))


class TestTheOrderOfDevices:
    def test_is_that_of_gres_conf_with_slices_one_by_one(self) -> None:
        layout = (MigSlices("3g.40gb", 2, (1, 2)),)
        kind = GpuGroup("a100", 2, ("/dev/nvidia0", "/dev/nvidia1"), mig=((), layout))

        assert device_names(Gpus("a100", 2, (kind,))) == ["0", "1.1", "1.2"]

    def test_is_not_known_where_slurmd_finds_the_gpus(self) -> None:
        assert device_names(Gpus("a100", 2, autodetect="nvml")) == []


class TestTheCollector:
    def jobs(self, tmp_path: Path, answers: Sequence[str] = ()) -> tuple[Jobs, list[Sequence[str]]]:
        asked: list[Sequence[str]] = []
        options = iter(answers)

        def ask(numbers: Sequence[str]) -> str:
            asked.append(numbers)
            return next(options, "")

        settings = {"cgroup": str(tmp_path), "map": str(tmp_path / "jobs"), "dcgm": str(tmp_path / "gpus")}
        return Jobs(settings, ask), asked

    def test_joins_use_and_owner(self, tmp_path: Path) -> None:
        second(tmp_path, "job_12", cpu=2_500_000, anon=1_000_000)
        jobmap.begin(Job("12", "alice", "phys", "gpu", gpus=(Gpu("0", "GPU-a"),)), *places(tmp_path))
        jobs, asked = self.jobs(tmp_path)

        lines = [line for line in render(METRICS, jobs.collect()).splitlines() if not line.startswith("#")]

        assert asked == []
        assert lines == [
            'deepops_job_cpu_seconds_total{jobid="12"} 2.5',
            'deepops_job_cpus{jobid="12"} 5',
            'deepops_job_gpu{jobid="12",gpu="0",uuid="GPU-a"} 1',
            'deepops_job_info{jobid="12",user="alice",account="phys",partition="gpu"} 1',
            'deepops_job_memory_bytes{jobid="12"} 1004096',
            'deepops_job_memory_peak_bytes{jobid="12"} 1004096',
            f'deepops_job_memory_requested_bytes{{jobid="12"}} {4 * GIB}',
        ]

    def test_remembers_the_peak_until_the_job_has_gone(self, tmp_path: Path) -> None:
        jobs, _ = self.jobs(tmp_path)

        def peak() -> float:
            return next(sample.value for sample in jobs.collect() if sample.name.endswith("peak_bytes"))

        second(tmp_path, "job_12", anon=5000)
        assert peak() == 9096
        second(tmp_path, "job_12", anon=0)
        assert peak() == 9096
        (tmp_path / "system.slice/slurmstepd.scope/job_12").rename(tmp_path / "gone")
        jobs.collect()
        second(tmp_path, "job_12", anon=0)
        assert peak() == 4096

    def test_knows_groups_by_their_sluid_and_keeps_jobs_apart(self, tmp_path: Path) -> None:
        second(tmp_path, "sEKNKTV3WPV500", anon=1000)
        second(tmp_path, "sEKNKTV3WPV501", anon=1000)
        second(tmp_path, "job_13", anon=2000)
        jobmap.begin(Job("12", "alice", "phys", "gpu", "sEKNKTV3WPV500"), *places(tmp_path))
        jobs, asked = self.jobs(tmp_path)

        result = {each.labels["jobid"]: each.value for each in jobs.collect() if each.name.endswith("memory_bytes")}

        assert result == {"12": 5096, "13": 6096}
        # Slurm says nothing of one, and is not asked again
        infos = [each.labels for each in jobs.collect() if each.name.endswith("info")]
        assert {"jobid": "13", "user": "", "account": "", "partition": ""} in infos
        assert len(asked) == 1

    def test_asks_slurm_once_for_what_no_prolog_has_told(self, tmp_path: Path) -> None:
        second(tmp_path, "job_12")
        second(tmp_path, "job_13")
        jobmap.begin(Job("12", "alice", "", "gpu", gpus=(Gpu("0"),)), *places(tmp_path))
        jobs, asked = self.jobs(tmp_path, ["12|alice|phys|gpu\n13|bob|chem|cpu\n99|x|y|z\n12|no\n"])

        jobs.collect()
        result = [sample.labels for sample in jobs.collect() if sample.name == "deepops_job_info"]

        assert asked == [["12", "13"]]
        assert result == [
            {"jobid": "12", "user": "alice", "account": "phys", "partition": "gpu"},
            {"jobid": "13", "user": "bob", "account": "chem", "partition": "cpu"},
        ]

    def test_takes_no_account_for_another_job(self) -> None:
        """Without AccountingStorageEnforce, `sbatch --account` takes any text."""
        text = "M12|alice|gpu|x\n13|root|y|z\nM13|bob|cpu|\x1b[31m\n"

        assert lines(text, "M") == "12|alice|x?13?root?y?z|gpu\n13|bob|?[31m|cpu"

    def test_keeps_what_it_saw_last_until_the_epilog_has_come(self, tmp_path: Path) -> None:
        second(tmp_path, "job_12", cpu=2_500_000, anon=1_000_000)
        jobmap.begin(Job("12", "alice", "phys", "gpu"), *places(tmp_path))
        jobs, _ = self.jobs(tmp_path)
        jobs.collect()
        (tmp_path / "system.slice/slurmstepd.scope/job_12").rename(tmp_path / "gone")

        result = {sample.name: sample.value for sample in jobs.collect()}
        assert result["deepops_job_cpu_seconds_total"] == 2.5
        assert result["deepops_job_memory_peak_bytes"] == 1_004_096
        assert "deepops_job_memory_bytes" not in result
        jobmap.end("12", *places(tmp_path))
        assert list(jobs.collect()) == []

    def test_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deepopsctl.node_programs.services.node_metrics.jobs.MOST_JOBS", 2)
        for number in ("1", "2", "3"):
            jobmap.begin(Job(number, account="a"), *places(tmp_path))
        jobs, _ = self.jobs(tmp_path)

        assert len(list(jobs.collect())) == 2


class TestSlurmsSettings:
    def test_name_our_programs_and_keep_the_rest(self) -> None:
        assert with_job_map({"prolog": "/site/prolog", "MaxJobCount": 5, "Epilog": None}, monitored=True) == {
            "MaxJobCount": 5,
            "Prolog": "/etc/slurm/deepops/prolog",
            "Epilog": "/etc/slurm/deepops/epilog",
        }

    def test_refuse_by_name_a_program_that_ours_could_not_call(self) -> None:
        settings = {"PROLOG": "prolog.sh", "Epilog": "/site/epilog.d/*", "TaskProlog": "x"}

        assert refused_with_job_map(settings, monitored=True) == [
            "PROLOG: with monitoring it must be an absolute path or pattern, and prolog.sh is none"
        ]
        assert refused_with_job_map(settings, monitored=False) == []

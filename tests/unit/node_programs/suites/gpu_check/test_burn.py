"""The sustained load itself: it runs, it finds what is wrong, it ends when it should."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check.burn import (
    core as burncore,
    gpu as burngpu,
    memory as burnmemory,
    node as burn,
    sensors as burnsensors,
    workers as burnworkers,
)
from deepopsctl.node_programs.suites.gpu_check.burn.cpu import WORKS, Work, one_round
from deepopsctl.node_programs.suites.gpu_check.burn.memory import CHUNK, Memory, WrongMemoryError
from tests.support.cluster import wait_until
from tests.support.files import write_files


def always() -> bool:
    return True


class TestCores:
    @pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
    def test_a_wrong_answer_of_each_work_is_found(self, work: Work) -> None:
        # the unit errs in its eighth round: what comes out is not what is known
        sick = work._replace(run=lambda number: work.run(number) if number != 7 else "another answer")

        seconds, wrong = one_round(6, (sick,))
        assert (seconds > 0, wrong) == (True, "")
        assert f"{work.name}, round 7: another answer instead of" in one_round(7, (sick,))[1]

    def test_a_core_that_errs_ends_its_load_with_the_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sick = WORKS[0]._replace(run=lambda number: WORKS[0].run(number) if number != 2 else "no")
        monkeypatch.setattr(burncore, "one_round", lambda number: one_round(number, (sick,)))

        *_, last = burncore.load({"core": 0, "memory": 0, "seconds": 600}, always)

        assert last["where"] == "cpu"
        assert "hashing, round 2" in last["wrong"]


class TestMemory:
    def test_it_takes_what_it_may_then_verifies_all_of_it_over_and_over(self) -> None:
        memory = Memory(3 * CHUNK + 1, always)
        for _ in range(3 + 2 * 3 * burnmemory.PATTERNS):
            assert memory.step()

        assert memory.size == 3 * CHUNK
        assert memory.verified == 2 * 3 * burnmemory.PATTERNS * CHUNK

    @pytest.mark.parametrize("steps", [3, 6, 9, 12, 15])
    def test_a_lost_bit_is_found_under_every_pattern(self, steps: int) -> None:
        memory = Memory(3 * CHUNK, always)
        for _ in range(steps):
            memory.step()
        memory._chunks[1][77] ^= 0x04

        memory.step()
        with pytest.raises(WrongMemoryError, match=f"1 of {CHUNK} bytes are wrong.*still wrong when read again"):
            memory.step()

    def test_a_test_that_does_not_see_the_planted_error_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        memory = Memory(CHUNK, always)
        memory.step()
        memory.self_test()
        monkeypatch.setattr(memory, "verify", lambda number: None)

        with pytest.raises(WrongMemoryError, match="did not find the error"):
            memory.self_test()

    def test_some_memory_always_stays_free(self, tmp_path: Path) -> None:
        assert not Memory(CHUNK, lambda: False).step()
        meminfo = tmp_path / "meminfo"
        meminfo.write_text("MemTotal: 10000000 kB\nMemFree: 1 kB\nMemAvailable: 1000001 kB\n")
        assert burnmemory.node_has_room(meminfo)

        meminfo.write_text("MemTotal: 10000000 kB\nMemAvailable: 999999 kB\n")
        assert not burnmemory.node_has_room(meminfo)

    def test_slurm_s_limit_counts_where_it_is_tighter(self) -> None:
        assert burn.memory_allowed({"SLURM_MEM_PER_NODE": "64"}) == 64 * 2**20
        assert burn.memory_allowed({"SLURM_MEM_PER_NODE": "0"}) > 64 * 2**20


class TestSensors:
    @pytest.fixture
    def machine(self, tmp_path: Path) -> Path:
        files = {
            "sys/devices/system/edac/mc/mc0/ce_count": "3",
            "sys/devices/system/edac/mc/mc1/ce_count": "4",
            "sys/devices/system/edac/mc/mc0/ue_count": "0",
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "2",
            "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "1",
            "sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable": "RxErr 1\nTOTAL_ERR_COR 1",
            "sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal": "TOTAL_ERR_FATAL 0",
            "sys/class/hwmon/hwmon3/name": "coretemp",
            "sys/class/hwmon/hwmon3/temp1_input": "71000",
            "sys/class/hwmon/hwmon4/name": "nvme",
            "sys/class/hwmon/hwmon4/temp1_input": "99000",
            "proc/interrupts": "           CPU0       CPU1\n MCE:          0          1   Machine check exceptions\n",
        }
        return write_files(tmp_path, {name: text + "\n" for name, text in files.items()})

    def test_the_kernel_s_counters_are_added_up(self, machine: Path) -> None:
        assert burnsensors.counters(machine) == {
            "memory_corrected": 7, "memory_uncorrected": 0, "machine_checks": 1, "thermal_interrupts": None,
            "throttled": 3, "pcie_corrected": 1, "pcie_uncorrected": 0,
        }  # fmt: skip
        assert burnsensors.temperature(machine) == 71.0
        # what came during the load
        actual = burnsensors.difference({"throttled": 5, "machine_checks": None}, {"throttled": 8, "machine_checks": 1})
        assert actual == {"throttled": 3, "machine_checks": None}

    def test_what_cannot_be_read_is_unknown_and_not_zero(self, tmp_path: Path) -> None:
        nothing = burnsensors.counters(tmp_path)

        assert set(nothing.values()) == {None}
        assert set(burnsensors.difference(nothing, nothing).values()) == {None}
        assert burnsensors.temperature(tmp_path) is None

    def test_a_kernel_log_that_is_closed_to_users_says_so(self, tmp_path: Path) -> None:
        log = burnsensors.KernelLog(str(tmp_path / "none"))

        assert "can't be read by a user" in log.obstacle
        assert log.trouble() == []

    def test_lines_of_hardware_errors_since_a_time_are_found(self) -> None:
        # each read returns one record, as that of /dev/kmsg does
        reader, writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        now = time.monotonic() * 1e6
        for age_s, text in (
            (700, "NVRM: Xid (old): 79"),
            (300, "eth0: up"),
            (300, "NVRM: Xid (new): 79\n SUBSYSTEM=pci"),
        ):
            os.write(writer, f"3,1,{now - age_s * 1e6:.0f},-;{text}\n".encode())
        log = burnsensors.KernelLog(f"/proc/self/fd/{reader}", past_s=600)

        assert log.result() == {"lines": ["NVRM: Xid (new): 79"]}
        for end in (reader, writer):
            os.close(end)
        log.close()


class TestGpu:
    """One GPU's load against the stand-in for libcuda: our side of the calls, no CUDA."""

    @pytest.fixture(autouse=True)
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(burngpu, "SLICES", dict.fromkeys(burngpu.SLICES, 0.001))

    def cycle(self, libcuda: str, lines: int = 4) -> list[dict[str, Any]]:
        """The first lines: one cycle has three rates and what was verified."""
        left = iter(range(lines - 1))
        order = {"uuid": "GPU-10101010-1010-1010-1010-101010101010", "pci": "", "seconds": 600}
        return list(burngpu.load(order, lambda: next(left, None) is not None, libcuda))

    def test_a_healthy_gpu_gives_all_rates_and_keeps_its_memory(self, libcuda: str) -> None:
        actual = self.cycle(libcuda, 8)

        assert [line.get("test", "held") for line in actual[:4]] == ["bf16", "fp32", "memory", "held"]
        assert actual[3]["verified"] > 0
        # the stand-in's clock: every call takes a tenth of a second
        assert actual[2]["rate"] == pytest.approx(16 * 2 * 2**20 / 0.1 / 1e9)

    @pytest.mark.parametrize(
        ("fault", "word", "says"),
        [
            ("flip", "wrong", "bf16: 4 of 8192 results"),
            ("blind", "wrong", "did not find the error that it had planted"),
            ("lost", "error", "cuLaunchKernel"),
        ],
    )
    def test_what_goes_wrong_is_the_last_line(
        self, libcuda: str, monkeypatch: pytest.MonkeyPatch, fault: str, word: str, says: str
    ) -> None:
        monkeypatch.setenv("FAKE_CUDA", fault)

        assert says in self.cycle(libcuda, 40)[-1][word]

    def test_a_gpu_without_bf16_is_loaded_with_the_rest(self, libcuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_CUDA", "old")

        assert [line.get("test", "held") for line in self.cycle(libcuda)] == ["fp32", "memory", "held", "fp32"]

    def test_without_cuda_it_is_skipped_with_the_reason(self, tmp_path: Path) -> None:
        assert "no NVIDIA driver here?" in self.cycle(str(tmp_path / "libcuda.so.1"))[-1]["skip"]


class TestWorkers:
    def test_a_process_that_dies_is_a_failure_with_its_last_words(self) -> None:
        worker = burnworkers.Worker("core", {"core": 0})
        wait_until("it has died", lambda: not worker.alive)
        worker.close()

        assert worker.end["status"] == "error"
        assert "died (1): KeyError" in worker.end["message"]

    def test_a_process_that_says_nothing_is_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(burnworkers, "SILENCE_S", {"core": 0.0})
        worker = burnworkers.Worker("core", {"core": 0, "memory": 0, "seconds": 600})

        worker.watch()
        worker.close()

        assert not worker.alive
        assert "hung: no sign of life" in worker.end["message"]

    def test_a_rate_over_time_is_reported_by_its_ends_and_its_middle(self) -> None:
        points = [(float(second), 100.0 - second / 2) for second in range(1, 101)]

        assert burnworkers.trend(points, 100.0) == {"min": 50.0, "median": 74.75, "first": 97.25, "last": 52.5}
        assert burnworkers.trend([], 100.0) == {}
        assert len(burnworkers.thinned(points)) == 60


class TestNode:
    def test_on_sigterm_it_ends_at_once_tells_how_far_it_came_and_passes_nothing(self) -> None:
        options = ["--burn", "3600", "--memory-share", "0.005", "--json"]
        argv = [sys.executable, "-m", "deepopsctl.node_programs.suites.gpu_check", *options]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_until("the load has begun", lambda: process.poll() is not None or children.read_text().split())
            workers = [Path("/proc", pid) for pid in children.read_text().split()]
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=600)

        document = json.loads(out)
        assert document["ok"] is False
        assert process.returncode != 0
        assert "pass" not in {check["status"] for check in document["checks"]}
        assert "of 3600 s: cancelled or preempted (SIGTERM)" in document["checks"][0]["message"]
        assert not any(worker.exists() for worker in workers)

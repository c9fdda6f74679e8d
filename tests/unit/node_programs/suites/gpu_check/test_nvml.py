"""The ctypes side of NVML: calls into a stand-in library that has the structures of the public header.

Neither is proof of NVML itself: that takes a GPU (docs/reference/gpucheck.md says what was proven).
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.gpu_check import nvmlabi as abi
from deepopsctl.node_programs.suites.gpu_check.inventory import driver_facts, inventory
from deepopsctl.node_programs.suites.gpu_check.nvml import LIBRARY, MissingError, Nvml, NvmlError
from tests.support.compiler import compiled


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in, compiled."""
    return compiled("nvml", tmp_path_factory.mktemp("nvml") / LIBRARY)


class TestCalls:
    def test_structures_are_laid_out_as_the_compiler_lays_them_out(self, library: str) -> None:
        sizes = ctypes.CDLL(library).sizes

        assert [sizes(which) for which in range(3)] == [
            ctypes.sizeof(kind) for kind in (abi.Memory, abi.PciInfo, abi.FabricInfo)
        ]

    def test_versions_are_read(self, library: str) -> None:
        assert driver_facts(Nvml(library)) == {"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": "13.0"}

    def test_values_arrive_whole(self, library: str) -> None:
        actual = inventory(Nvml(library))[0]

        assert actual["name"] == "NVIDIA H100 80GB HBM3"
        assert actual["memory_mib"] == 81559
        assert actual["pci"] == "0000:1b:02.0"
        assert actual["ecc"]["uncorrected_ever"] == 2**40 + 11
        assert actual["ecc"]["mode"] == {"now": True, "after_reboot": False}
        assert actual["rows"] == {"corrected": 1, "uncorrected": 2, "pending": True, "failed": False}
        assert actual["fabric"] == {"state": "completed", "status": 0, "faults": ["unhealthy route"]}
        assert actual["nvlinks"] == [True, True, True, False]
        assert actual["power"] == {"draw": 70.125, "limit": None, "default_limit": None}

        # by the name that an older driver has for the function
        assert actual["clocks"]["slowdowns"] == ["power cap", "thermal (hardware)"]
        # what a GPU does not know
        assert (actual["persistence"], actual["serial"]) == (None, None)

    def test_processes_are_counted_and_a_lost_gpu_is_listed_with_its_trouble(self, library: str) -> None:
        gpus = inventory(Nvml(library))

        assert [gpu.get("processes") for gpu in gpus] == [0, 2, None]
        assert gpus[2]["index"] == 2
        assert "fallen off the bus" in gpus[2]["error"]

    @pytest.mark.parametrize(("code", "says"), [("9", "not loaded"), ("18", "waits for a reboot"), ("999", "made up")])
    def test_a_driver_that_does_not_start_says_why(
        self, library: str, monkeypatch: pytest.MonkeyPatch, code: str, says: str
    ) -> None:
        monkeypatch.setenv("FAKE_NVML_INIT", code)

        with pytest.raises(NvmlError, match=says):
            Nvml(library)

    def test_a_node_without_the_library_is_a_case_of_its_own(self) -> None:
        with pytest.raises(MissingError, match="no NVIDIA driver here"):
            Nvml("libnvidia-ml-of-nobody.so.1")


def test_without_cuda_the_driver_is_asked_and_nothing_is_measured(library: str) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(library).parent)}
    argv = [sys.executable, "-m", "deepopsctl.node_programs.suites.gpu_check", "--json"]

    ran = subprocess.run(argv, capture_output=True, text=True, env=environment)

    actual = json.loads(ran.stdout)
    first, busy, lost = actual["results"][0]["gpus"]
    assert ran.returncode == 1
    # where a real libcuda is, it knows no such GPU: an error. Never a number, never a pass
    assert {result["status"] for result in first["measured"].values()} <= {"skip", "error"}
    assert "2 processes compute on it" in busy["measured"]["fp32"]["message"]
    assert "the driver can't open it" in lost["measured"]["fp32"]["message"]
    by_name = {check["name"]: check["status"] for check in actual["checks"] if check["target"].endswith("/0")}
    assert "pass" not in {by_name[name] for name in ("gpu-memory-test", "gpu-memory-copy", "gpu-fp32", "gpu-bf16")}
    assert by_name["gpu-clocks"] == "skip"
    assert ran.stderr.startswith("measuring GPU 0: NVIDIA H100 80GB HBM3")

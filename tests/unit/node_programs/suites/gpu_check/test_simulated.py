"""Stand-ins and real GPUs without a driver are told apart; stand-ins never pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.gpu_check import simulated as module
from deepopsctl.node_programs.suites.gpu_check.evaluation import MEASURED, evaluate
from deepopsctl.node_programs.suites.gpu_check.simulated import simulated, stands_in
from tests.data.gpu_check_samples import without_driver
from tests.support.files import write_files

WHY = "simulated GPUs of a lab: nothing to measure"


def machine(root: Path, *paths: str) -> Path:
    """A root directory with device files (plain ones: they are not NVIDIA devices) and whatever else it has."""
    return write_files(root, dict.fromkeys(("dev/nvidia0", "dev/nvidia1", *paths), ""))


def on_the_bus(root: Path, kind: str = "0x030200", vendor: str = "0x10de") -> Path:
    write_files(root / "sys/bus/pci/devices/0000:1b:00.0", {"vendor": f"{vendor}\n", "class": f"{kind}\n"})
    return root


class TestWhatTheKernelSays:
    def test_files_without_hardware_and_without_a_driver_are_stand_ins(self, tmp_path: Path) -> None:
        assert simulated(machine(tmp_path)) == (
            "simulated GPUs: /dev/nvidia0, /dev/nvidia1 without hardware on the PCI bus and without a driver: "
            "nothing to measure"
        )

    def test_a_gpu_on_the_bus_or_a_loaded_driver_means_real_gpus(self, tmp_path: Path) -> None:
        assert simulated(on_the_bus(machine(tmp_path / "bus"))) == ""
        assert simulated(machine(tmp_path / "driver", "sys/module/nvidia/version")) == ""
        assert simulated(tmp_path) == ""

    @pytest.mark.parametrize(("kind", "vendor"), [("0x068000", "0x10de"), ("0x030000", "0x1002")])
    def test_other_hardware_is_no_gpu_of_nvidia(self, tmp_path: Path, kind: str, vendor: str) -> None:
        assert simulated(on_the_bus(machine(tmp_path), kind, vendor))

    def test_a_device_that_a_driver_answers_for_is_real(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "stands_in", lambda path: path.name != "nvidia1")

        assert simulated(machine(tmp_path)) == ""

    def test_a_labs_node_says_so_even_where_its_host_has_a_gpu(self, tmp_path: Path) -> None:
        root = on_the_bus(machine(tmp_path, "usr/local/lib/lab/init", "sys/module/nvidia/version"))

        assert simulated(root) == WHY

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
    def test_nvidias_number_without_a_driver_behind_it_stands_in(self, tmp_path: Path) -> None:
        path = tmp_path / "nvidia0"
        try:
            os.mknod(path, 0o666 | 0o020000, os.makedev(module.NVIDIA_MAJOR, 200))
            os.close(os.open(path, os.O_RDWR))
        except PermissionError:
            pytest.skip("no device files can be made or opened here")
        except OSError:
            pass

        assert stands_in(path)
        assert stands_in(Path("/dev/null"))


class TestJudging:
    def test_every_measurement_of_a_simulated_gpu_is_skipped_whatever_was_expected(self) -> None:
        checks = evaluate([{**without_driver("gpu01"), "simulated": WHY}], (), {"gpu01": 2})

        assert {check["name"] for check in checks} == {"gpu-driver", "gpu-count", *MEASURED}
        assert {(check["status"], check["message"]) for check in checks} == {("skip", WHY)}

"""cluster.yml, the driver and slurmd compared: what they say in the forms that nvidia-smi and scontrol give it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepopsctl.gpus.gres import expected_gpus
from deepopsctl.gpus.notation import default_files
from deepopsctl.model.cluster import GpuGroup, Gpus, MigSlices
from tests.support import node_modules as nodeside
from tests.support.files import write_files, write_program

agreement = nodeside.load("nvidia.gpu_check")

H100 = "NVIDIA H100 80GB HBM3"
NODE = "NodeName=gpu01 Arch=x86_64 CoresPerSocket=56 Gres={gres} OS=Linux State={state} ThreadsPerCore=2{reason}"
FEWER = " Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-11-22T01:02:03]"


def driver(*products: str) -> Any:
    """A driver that lists these, in the order of their minors."""
    return agreement.Driver(dict(enumerate(products)))


def slurmd(gres: str, state: str = "IDLE", reason: str = "") -> Any:
    """What slurmd registered."""
    return agreement.Registered(NODE.format(gres=gres, state=state, reason=reason), "gpu01")


def differs(gpus: Gpus, output: Any, registered: Any) -> str:
    """The sentence."""
    result: str = agreement.sentence(expected_gpus(gpus), output, registered)
    return result


EIGHT = Gpus("h100", 8)
GOOD = slurmd("gpu:h100:8(S:0-1)")


EIGHT_CARDS = driver(*[H100] * 8)
SILENT = agreement.Driver(silent="none (nvidia-smi: Failed to initialize NVML: Driver/library version mismatch)")
UNKNOWN = agreement.Registered("slurm_load_node error: Unable to contact slurm controller", "gpu01")
SEVEN = (
    "its GPUs are not what they should be: cluster.yml says h100:8, the driver 7 x NVIDIA H100 80GB HBM3, "
    "slurmd gpu:h100:8"
)


class TestAgreement:
    @pytest.mark.parametrize(
        ("cards", "registered", "sentence"),
        [
            (EIGHT_CARDS, GOOD, ""),
            (driver(*[H100] * 7), GOOD, SEVEN),
            (driver(*["NVIDIA H200"] * 8), GOOD, "the driver 8 x NVIDIA H200,"),
            (
                EIGHT_CARDS,
                slurmd("gpu:h100:8", "IDLE+INVALID_REG+DRAIN", FEWER),
                "slurmd gpu:h100:8 (gres/gpu count reported lower than configured (7 < 8))",
            ),
            # a reason that outlived its fault
            (EIGHT_CARDS, slurmd("gpu:h100:8", "IDLE+DRAIN", FEWER), ""),
            (EIGHT_CARDS, slurmd("gpu:h100:4"), "slurmd gpu:h100:4"),
            (EIGHT_CARDS, slurmd("(null)"), "slurmd none"),
            # simulated GPUs have no driver
            (agreement.Driver(), GOOD, ""),
            (agreement.Driver(), slurmd("gpu:h100:4"), "the driver nothing (there is none)"),
            # one that does not answer where it should
            (SILENT, GOOD, "version mismatch"),
            # a node that slurmctld does not know
            (EIGHT_CARDS, UNKNOWN, ""),
            (driver(H100), UNKNOWN, "slurmd nothing"),
        ],
    )
    def test_what_differs_is_named_with_all_three_values(self, cards: Any, registered: Any, sentence: str) -> None:
        result = differs(EIGHT, cards, registered)

        assert sentence in result if sentence else result == ""

    def test_more_gpus_than_declared_are_worth_a_warning(self) -> None:
        assert differs(Gpus("h100", 6), EIGHT_CARDS, slurmd("gpu:h100:6")) == ""
        assert agreement.surplus(expected_gpus(Gpus("h100", 6)), EIGHT_CARDS).startswith(
            "2 of its GPUs are not in cluster.yml"
        )


class TestKinds:
    MIXED = Gpus("", 4, (GpuGroup("a40", 2, default_files(0, 2)), GpuGroup("l40s", 2, default_files(2, 2))))
    SLURM = slurmd("gpu:a40:2,gpu:l40s:2")

    def test_each_card_is_compared_with_the_file_it_has(self) -> None:
        a40, l40s = "NVIDIA A40", "NVIDIA L40S"
        assert differs(self.MIXED, driver(a40, a40, l40s, l40s), self.SLURM) == ""
        assert differs(self.MIXED, driver(l40s, l40s, a40, a40), self.SLURM) != ""

    def test_autodetect_finds_the_files_itself(self) -> None:
        result = Gpus("", 4, self.MIXED.groups, "nvml")
        assert differs(result, driver("NVIDIA L40S", "NVIDIA A40", "NVIDIA L40S", "NVIDIA A40"), self.SLURM) == ""
        assert differs(result, driver("NVIDIA L40S", "NVIDIA A40", "NVIDIA A40", "NVIDIA A40"), self.SLURM) != ""

    def test_slices_count_in_slurm_and_cards_with_the_driver(self) -> None:
        layout = (MigSlices("1g.5gb", 7, tuple(range(7, 14))),)
        cut = Gpus("a100", 2, (GpuGroup("a100", 2, default_files(0, 2), (layout, layout)),))
        cards = driver("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")
        assert differs(cut, cards, slurmd("gpu:a100_1g.5gb:14")) == ""
        assert differs(cut, cards, slurmd("gpu:a100_1g.5gb:13")) != ""

    @pytest.mark.parametrize(
        ("kind", "product", "fits"),
        [
            ("h100", "NVIDIA H100 64GB HBM2e", True),
            ("h100", "NVIDIA GH200 480GB", False),
            ("l4", "NVIDIA L40S", False),
            ("a100_80gb", "NVIDIA A100-SXM4-80GB", True),
            ("a100_80gb", "NVIDIA A100-SXM4-40GB", False),
            ("rtx4090", "NVIDIA GeForce RTX 4090", True),
            ("rtx4090", "NVIDIA GeForce RTX 4090 D", True),
            ("ourownword", "NVIDIA H100 80GB HBM3", True),
            ("", "NVIDIA H100 80GB HBM3", True),
        ],
    )
    def test_a_product_fits_a_type(self, kind: str, product: str, fits: bool) -> None:
        gres = f"gpu:{kind}:1" if kind else "gpu:1"
        assert (differs(Gpus(kind, 1), driver(product), slurmd(gres)) == "") is fits


class TestReading:
    LINES = "NVIDIA A40, 00000000:17:00.0\nNVIDIA L40S, 00000000:CA:00.0\n"

    def test_the_kernel_module_says_which_file_a_gpu_has(self, tmp_path: Path) -> None:
        for address, minor in (("0000:17:00.0", 1), ("0000:ca:00.0", 0)):
            information = f"Model: \t\t NVIDIA\nDevice Minor: \t {minor}\n"
            write_files(tmp_path, {f"proc/driver/nvidia/gpus/{address}/information": information})
        assert agreement.read_cards(self.LINES, str(tmp_path)) == {1: "NVIDIA A40", 0: "NVIDIA L40S"}

        # without it the order counts
        assert agreement.read_cards(self.LINES, str(tmp_path / "none")) == {0: "NVIDIA A40", 1: "NVIDIA L40S"}

    @pytest.mark.parametrize(("bus", "container", "silent"), [(False, False, ""), (True, True, ""), (True, False, "x")])
    def test_a_driver_that_fails_counts_where_there_is_a_gpu_to_drive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bus: bool, container: bool, silent: str
    ) -> None:
        write_program(tmp_path / "nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not talk'; exit 9")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        if bus:
            h100 = {"vendor": "0x10de", "class": "0x030200", "device": "0x2330"}
            write_files(tmp_path / "sys/bus/pci/devices/0000:17:00.0", h100)
        if container:
            write_files(tmp_path, {"run/systemd/container": "podman"})

        result = agreement.ask_driver(str(tmp_path))

        assert result.cards is None
        assert bool(result.silent) is bool(silent)
        assert "NVIDIA-SMI has failed" in result.silent or not silent

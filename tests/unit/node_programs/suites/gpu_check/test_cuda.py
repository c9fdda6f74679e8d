"""Our side of libcuda, cuBLAS and NCCL: every measurement run against stand-ins in C, healthy and with faults.

That shows that calls are made as cuda.h has them and that wrong results are noticed. It proves nothing of CUDA: rates
are nonsense, and no PTX is compiled (docs/reference/gpucheck.md says what was proven).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check import device_tests, libraries, links, worker
from deepopsctl.node_programs.suites.gpu_check.cuda import Cuda, CudaError, Gpu, NoCudaError
from deepopsctl.node_programs.suites.gpu_check.device_tests import Bench
from tests.support.compiler import compiled

UUID = "GPU-10101010-1010-1010-1010-101010101010"
TESTS = list(worker.ON_ONE)


@pytest.fixture
def extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stand-in for cuBLAS and NCCL, with little to do."""
    monkeypatch.setattr(libraries, "_SIDE", 64)
    monkeypatch.setattr(libraries, "_NCCL_SIZES", (4096, 65536))
    return compiled("libraries", tmp_path / "liblibraries.so")


@pytest.fixture(autouse=True)
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes, not gigabytes: the copies are the processor's here."""
    monkeypatch.setattr(links, "SIZES", (64 * 1024, 2**20))
    monkeypatch.setattr(links, "_BATCH_BYTES", 2**20)
    monkeypatch.setattr(device_tests, "_LEAST_BYTES", 2**20)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Choose what goes wrong."""
    return lambda name: monkeypatch.setenv("FAKE_CUDA", name)


def measure(libcuda: str, *tests: str, uuid: str = UUID, cublas: str = "") -> dict[str, Any]:
    return worker.on_one(Cuda(libcuda), {"uuid": uuid, "pci": "", "tests": tests or TESTS, "cublas": cublas})


def across(libcuda: str, test: str, gpus: int = 2, nccl: str = "") -> dict[str, Any]:
    actual: dict[str, Any] = worker.across(Cuda(libcuda), {"tests": [test], "gpus": gpus, "nccl": nccl})[test]
    return actual


def statuses(actual: dict[str, Any]) -> dict[str, str]:
    return {name: result["status"] for name, result in actual.items()}


class TestHealthy:
    def test_every_measurement_gives_its_numbers(self, libcuda: str) -> None:
        actual = measure(libcuda)

        assert statuses(actual) == dict.fromkeys(TESTS, "measured")
        # 4 MiB read and written, and a tenth of a second
        assert actual["memory_bandwidth"]["copy_gb_s"] == pytest.approx(2 * 2**22 / 0.1 / 1e9)
        assert actual["memory_bandwidth"]["triad_gb_s"] == pytest.approx(3 * 2**22 / 0.1 / 1e9)
        assert actual["memory_test"] == {"status": "measured", "tested_mib": 14, "patterns": 5}
        assert [point["bytes"] for point in actual["host_link"]["h2d"]] == [65536, 2**20]

    def test_operations_are_counted_as_the_kernels_make_them(self, libcuda: str) -> None:
        actual = measure(libcuda, "fp32", "bf16")
        threads, rounds = 2 * 4 * 256, 64

        assert actual["fp32"]["fp32_tflop_s"] == pytest.approx(threads * 8 * (8 * rounds + 1) * 2 / 0.1 / 1e12)
        warps, one = threads // 32, 16 * 8 * 16 * 2
        assert actual["bf16"]["bf16_tflop_s"] == pytest.approx(warps * 8 * (2 * rounds + 1) * one / 0.1 / 1e12)

    def test_all_pairs_of_gpus_are_measured(self, libcuda: str) -> None:
        pairs = across(libcuda, "peers")["pairs"]

        assert [(pair["from"], pair["to"], pair["direct"]) for pair in pairs] == [(0, 1, True), (1, 0, True)]


class TestFaults:
    @pytest.mark.parametrize(
        ("name", "test", "status", "message"),
        [
            ("flip", "memory_bandwidth", "wrong", f"copy: 1 of {2**20} words are wrong, the first at byte 160"),
            ("flip", "host_link", "wrong", "what came back is not what was sent"),
            ("flip", "fp32", "wrong", "fp32: 1 of 2048 results are wrong"),
            ("flip", "bf16", "wrong", "results are wrong"),
            # a test that cannot fail is not a test
            ("blind", "memory_test", "wrong", "the memory test did not find the error that it had planted"),
            ("old", "bf16", "skip", "compute capability 7.0: bf16 matrices came with 8.0"),
        ],
    )
    def test_a_wrong_result_or_an_old_gpu_is_named(
        self, libcuda: str, fault: Any, name: str, test: str, status: str, message: str
    ) -> None:
        fault(name)

        actual = measure(libcuda, test)[test]

        assert actual["status"] == status
        assert message in actual["message"]

    @pytest.mark.parametrize(
        ("test", "message"),
        [("peers", ""), ("all_reduce", "all-reduce, rank 0: 1 of 16384 words are wrong")],
    )
    def test_a_lost_bit_between_gpus_is_a_wrong_result(
        self, libcuda: str, extras: str, fault: Any, test: str, message: str
    ) -> None:
        fault("flip")

        actual = across(libcuda, test, nccl=extras)

        assert actual["status"] == "wrong"
        assert actual["message"].startswith(message)

    def test_after_an_error_the_rest_is_skipped(self, libcuda: str, fault: Any) -> None:
        fault("lost")

        actual = measure(libcuda, "memory_bandwidth", "fp32", "bf16")

        assert statuses(actual) == {"memory_bandwidth": "measured", "fp32": "error", "bf16": "skip"}
        assert "719" in actual["fp32"]["message"]

    def test_a_gpu_without_room_is_skipped_with_what_is_free(
        self, libcuda: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(device_tests, "_LEAST_BYTES", 2**26)

        actual = measure(libcuda, "memory_bandwidth")

        assert actual["memory_bandwidth"] == {"status": "skip", "message": "only 16 MiB of its memory are free"}

    def test_a_gpu_that_is_another_or_does_not_open_is_not_measured(self, libcuda: str) -> None:
        other = measure(libcuda, "fp32", uuid="GPU-of-nobody")["fp32"]

        assert other["message"] == f"CUDA gives {UUID} where NVML has GPU-of-nobody"
        assert across(libcuda, "peers", gpus=8) == {"status": "skip", "message": "CUDA opens 2 of 8 GPUs"}

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("jit", r"CUDA_ERROR_INVALID_PTX \(218\): ptxas application ptx input, line 7; made up"),
            ("no-device", r"cuInit: CUDA_ERROR_NO_DEVICE \(100\)"),
        ],
    )
    def test_what_the_driver_refuses_is_quoted(self, libcuda: str, fault: Any, name: str, message: str) -> None:
        fault(name)

        with pytest.raises(CudaError, match=message):
            Bench(Gpu(Cuda(libcuda)))

    def test_a_node_without_the_library_is_a_case_of_its_own(self) -> None:
        with pytest.raises(NoCudaError, match="no NVIDIA driver here"):
            Cuda("libcuda-of-nobody.so.1")


class TestLibraries:
    def test_a_matrix_product_is_measured_and_checked(self, libcuda: str, extras: str) -> None:
        actual = measure(libcuda, "bf16_gemm", cublas=extras)["bf16_gemm"]

        assert actual["status"] == "measured"
        assert actual["bf16_gemm_tflop_s"] == pytest.approx(2 * 64**3 / 0.1 / 1e12)

    def test_all_gpus_reduce_together_and_the_sums_are_checked(self, libcuda: str, extras: str) -> None:
        actual = across(libcuda, "all_reduce", nccl=extras)

        assert (actual["status"], actual["ranks"]) == ("measured", 2)
        assert [point["bytes"] for point in actual["all_reduce"]] == [4096, 65536]

    @pytest.mark.parametrize("path", ["/nowhere/libcublas.so", ""])
    def test_a_library_that_is_missing_or_another_one_is_a_skip(self, libcuda: str, path: str) -> None:
        actual = measure(libcuda, "bf16_gemm", cublas=path or libcuda)["bf16_gemm"]

        assert actual["status"] == "skip"
        assert (f"{path} can't be loaded" if path else "is it the right library?") in actual["message"]

"""The PTX of gpucheck: it assembles, and it computes what its comments say. No GPU is involved in either."""

from __future__ import annotations

import array
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.gpu_check.device_tests import PATTERNS, bf16_tile, kernels
from tests.support.ptx_reader import Kernel, kernels_of, launch

FILES = ("memory", "fma", "mma")
MASK = 2**32 - 1
# what CUDA 12 and 13 both still assemble for; older GPUs can only be left to their driver
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
NEWER = ("sm_100", "sm_120")


def kernel(file: str, name: str) -> Kernel:
    return kernels_of(kernels(file).decode())[name]


def word(index: int, seed: int, step: int) -> int:
    low, high = index & MASK, index >> 32
    return ((low + high * 0x85EBCA6B) * step + seed) & MASK


class TestAssembling:
    @pytest.mark.parametrize("file", FILES)
    @pytest.mark.parametrize("architecture", [*ARCHITECTURES, *NEWER])
    def test_ptxas_takes_every_kernel(self, file: str, architecture: str, tmp_path: Path) -> None:
        result = assemble(kernels(file), architecture, tmp_path)

        if file == "mma" and architecture == "sm_75":
            assert "higher than default SM version" in result.stderr
        else:
            assert result.returncode == 0, result.stdout + result.stderr


def assemble(ptx: bytes, architecture: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """ptxas's answer; skipped where there is none, or one that doesn't know the architecture."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas (CUDA toolkit) on this machine")
    known = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    if f"'{architecture}'" not in known:
        pytest.skip(f"this ptxas does not know {architecture}")
    source = directory / "kernel.ptx"
    source.write_bytes(ptx)
    argv = [ptxas, "-arch", architecture, str(source), "-o", str(directory / "kernel.cubin")]
    return subprocess.run(argv, capture_output=True, text=True)


class TestMemory:
    @pytest.mark.parametrize(("seed", "step"), PATTERNS)
    def test_fill_writes_the_pattern_and_no_word_more(self, seed: int, step: int) -> None:
        memory = bytearray(b"\xcc" * 4 * 102)

        launch(kernel("memory", "fill"), memory, 2, 16, 0, 100, seed, step)

        words = array.array("I", bytes(memory))
        assert list(words[:100]) == [word(index, seed, step) for index in range(100)]
        assert list(words[100:]) == [0xCCCCCCCC] * 2

    def test_check_counts_wrong_words_and_names_the_first(self) -> None:
        seed, step = PATTERNS[-1]
        memory = bytearray(struct.pack("<QQ", 0, 2**64 - 1) + bytes(400))
        launch(kernel("memory", "fill"), memory, 2, 16, 16, 100, seed, step)
        launch(kernel("memory", "check"), memory, 2, 16, 16, 100, seed, step, 0)
        assert struct.unpack_from("<QQ", memory) == (0, 2**64 - 1)
        for index in (93, 41):
            memory[16 + 4 * index] ^= 0x10

        launch(kernel("memory", "check"), memory, 2, 16, 16, 100, seed, step, 0)

        assert struct.unpack_from("<QQ", memory) == (2, 41)

    @pytest.mark.parametrize("quads", [1, 31, 32, 33, 64, 65, 100])
    def test_copy_copies_every_byte_and_no_more(self, quads: int) -> None:
        size = quads * 16
        source = bytes(index * 7 & 0xFF for index in range(size))
        memory = bytearray(bytes(size) + b"\xcc" * 16 + source)

        launch(kernel("memory", "copy"), memory, 1, 32, 0, size + 16, quads)

        assert memory[:size] == source
        assert memory[size : size + 16] == b"\xcc" * 16

    def test_triad_multiplies_and_adds(self) -> None:
        count = 160
        b, c = (array.array("f", (factor * index for index in range(count))) for factor in (1, 2))
        memory = bytearray(bytes(4 * count) + b.tobytes() + c.tobytes())

        launch(kernel("memory", "triad"), memory, 1, 32, 0, 4 * count, 8 * count, 3.0, count // 4)

        assert list(array.array("f", bytes(memory[: 4 * count]))) == [7.0 * index for index in range(count)]


class TestRates:
    def test_the_fma_chains_end_where_the_host_expects_them(self) -> None:
        memory = bytearray(4 * 64)

        launch(kernel("fma", "fma_rate"), memory, 2, 32, 0, 3, -1.0, 1024.0)

        assert list(array.array("f", bytes(memory))) == [8 * (1024 - start) - 28 for start in range(64)]
        # a single wrong step stays in the result
        text = kernels("fma").decode().replace("fma.rn.f32 %x3, %x3, %a, %b;", "fma.rn.f32 %x3, %x3, %a, %x2;", 1)
        launch(kernels_of(text)["fma_rate"], memory, 1, 32, 0, 3, -1.0, 1024.0)
        assert array.array("f", bytes(memory))[0] != 8 * 1024 - 28

    def test_the_matrix_tiles_end_as_the_host_expects_them(self) -> None:
        memory = bytearray(16 * 64)

        launch(kernel("mma", "mma_rate"), memory, 1, 64, 0, 1)

        assert bytes(memory) == bf16_tile(8).tobytes() * 2

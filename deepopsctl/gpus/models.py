"""NVIDIA's GPU products: nvidia-smi's names, and the gres types for Slurm.

Product names are those of NVML (`nvidia-smi --query-gpu=name`). Sources: NVIDIA's lists of supported products (driver
release notes), the README of open-gpu-kernel-modules (product names, Turing and later), the MIG user guide (supported
GPUs and profiles) and CUDA's list of compute capabilities. Types are those of national HPC centres (h100, a100,
v100, rtx4090): the model, in lower case, without vendor, form factor and memory. No row was checked on a device.

docs/reference/gpu-models.md is written from these tables by scripts/gpu-model-table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from deepopsctl.gpus.mig_profiles import FAMILIES, MigProfile


class Generation(StrEnum):
    """NVIDIA's architectures, oldest first."""

    PASCAL = "Pascal"
    VOLTA = "Volta"
    TURING = "Turing"
    AMPERE = "Ampere"
    ADA = "Ada Lovelace"
    HOPPER = "Hopper"
    BLACKWELL = "Blackwell"


class Modules(StrEnum):
    """The type of NVIDIA's kernel modules that a GPU needs."""

    PROPRIETARY = "proprietary"
    EITHER = "either"
    OPEN = "open"


# Open modules need the GSP of Turing and later; Grace Hopper and Blackwell have no proprietary ones.
_MODULES = {
    Generation.PASCAL: Modules.PROPRIETARY,
    Generation.VOLTA: Modules.PROPRIETARY,
    Generation.BLACKWELL: Modules.OPEN,
}


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One product: NVML's name, Slurm's gres type, memory (GB) and the MIG profiles' family ('' without MIG)."""

    product: str
    type: str
    generation: Generation
    memory_gb: int
    family: str = ""

    @property
    def modules(self) -> Modules:
        """The kernel modules it runs with."""
        return Modules.OPEN if self.type == "gh200" else _MODULES.get(self.generation, Modules.EITHER)

    @property
    def typed_with_memory(self) -> str:
        """The type for clusters that mix memory variants of one model: `a100_80gb`."""
        return f"{self.type}_{self.memory_gb}gb"

    def goes_by(self, gpu_type: str) -> bool:
        """Whether it has this gres type: `a100`, or `a100_80gb` for one of its variants."""
        return gpu_type.lower() in (self.type, self.typed_with_memory)

    @property
    def detected_type(self) -> str:
        """Slurm's AutoDetect type: NVML's name in lower case, blanks as underscores."""
        return re.sub(r"\s+", "_", self.product.lower())

    @property
    def mig(self) -> Mapping[str, MigProfile]:
        """Its MIG profiles by name."""
        return FAMILIES[self.family] if self.family else {}


_P, _V, _T, _A, _L, _H, _B = Generation

MODELS = (
    GpuModel("Tesla P4", "p4", _P, 8),
    GpuModel("Tesla P40", "p40", _P, 24),
    GpuModel("Tesla P100-PCIE-12GB", "p100", _P, 12),
    GpuModel("Tesla P100-PCIE-16GB", "p100", _P, 16),
    GpuModel("Tesla P100-SXM2-16GB", "p100", _P, 16),
    GpuModel("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti", _P, 11),
    GpuModel("NVIDIA TITAN Xp", "titanxp", _P, 12),
    GpuModel("Tesla V100-PCIE-16GB", "v100", _V, 16),
    GpuModel("Tesla V100-PCIE-32GB", "v100", _V, 32),
    GpuModel("Tesla V100-SXM2-16GB", "v100", _V, 16),
    GpuModel("Tesla V100-SXM2-32GB", "v100", _V, 32),
    GpuModel("Tesla V100-SXM3-32GB", "v100", _V, 32),
    GpuModel("Tesla V100S-PCIE-32GB", "v100s", _V, 32),
    GpuModel("NVIDIA TITAN V", "titanv", _V, 12),
    GpuModel("Tesla T4", "t4", _T, 16),
    GpuModel("Quadro RTX 6000", "rtx6000", _T, 24),
    GpuModel("Quadro RTX 8000", "rtx8000", _T, 48),
    GpuModel("NVIDIA TITAN RTX", "titanrtx", _T, 24),
    GpuModel("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti", _T, 11),
    GpuModel("NVIDIA A2", "a2", _A, 16),
    GpuModel("NVIDIA A10", "a10", _A, 24),
    GpuModel("NVIDIA A16", "a16", _A, 16),
    GpuModel("NVIDIA A30", "a30", _A, 24, "a30"),
    GpuModel("NVIDIA A40", "a40", _A, 48),
    GpuModel("NVIDIA A100-PCIE-40GB", "a100", _A, 40, "40gb"),
    GpuModel("NVIDIA A100-SXM4-40GB", "a100", _A, 40, "40gb"),
    GpuModel("NVIDIA A100 80GB PCIe", "a100", _A, 80, "80gb"),
    GpuModel("NVIDIA A100-SXM4-80GB", "a100", _A, 80, "80gb"),
    GpuModel("NVIDIA A800-SXM4-80GB", "a800", _A, 80, "80gb"),
    GpuModel("NVIDIA A800 80GB PCIe", "a800", _A, 80, "80gb"),
    GpuModel("NVIDIA RTX A4000", "a4000", _A, 16),
    GpuModel("NVIDIA RTX A5000", "a5000", _A, 24),
    GpuModel("NVIDIA RTX A6000", "a6000", _A, 48),
    GpuModel("NVIDIA GeForce RTX 3080", "rtx3080", _A, 10),
    GpuModel("NVIDIA GeForce RTX 3090", "rtx3090", _A, 24),
    GpuModel("NVIDIA L4", "l4", _L, 24),
    GpuModel("NVIDIA L40", "l40", _L, 48),
    GpuModel("NVIDIA L40S", "l40s", _L, 48),
    GpuModel("NVIDIA RTX 4000 Ada Generation", "rtx4000ada", _L, 20),
    GpuModel("NVIDIA RTX 5000 Ada Generation", "rtx5000ada", _L, 32),
    GpuModel("NVIDIA RTX 6000 Ada Generation", "rtx6000ada", _L, 48),
    GpuModel("NVIDIA GeForce RTX 4080", "rtx4080", _L, 16),
    GpuModel("NVIDIA GeForce RTX 4090", "rtx4090", _L, 24),
    GpuModel("NVIDIA H20", "h20", _H, 96, "96gb"),
    GpuModel("NVIDIA H100 PCIe", "h100", _H, 80, "80gb"),
    GpuModel("NVIDIA H100 80GB HBM3", "h100", _H, 80, "80gb"),
    GpuModel("NVIDIA H100 NVL", "h100", _H, 94, "94gb"),
    GpuModel("NVIDIA H800", "h800", _H, 80, "80gb"),
    GpuModel("NVIDIA H200", "h200", _H, 141, "141gb"),
    GpuModel("NVIDIA H200 NVL", "h200", _H, 141, "141gb"),
    GpuModel("NVIDIA GH200 120GB", "gh200", _H, 96, "96gb"),
    GpuModel("NVIDIA GH200 480GB", "gh200", _H, 96, "96gb"),
    GpuModel("NVIDIA GH200 144G HBM3e", "gh200", _H, 144, "144gb"),
    GpuModel("NVIDIA B200", "b200", _B, 180, "b200"),
    GpuModel("NVIDIA GB200", "gb200", _B, 186, "gb200"),
    GpuModel("NVIDIA B300 SXM6 AC", "b300", _B, 269, "b300"),
    GpuModel("NVIDIA GB300", "gb300", _B, 278, "gb300"),
    GpuModel("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000", _B, 96, "rtxpro6000"),
    GpuModel("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000", _B, 96, "rtxpro6000"),
    GpuModel("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtxpro6000", _B, 96, "rtxpro6000"),
    GpuModel("NVIDIA GeForce RTX 5080", "rtx5080", _B, 16),
    GpuModel("NVIDIA GeForce RTX 5090", "rtx5090", _B, 32),
)


def _key(product: str) -> str:
    # drivers before 470 have `A100-SXM4-40GB` and `GeForce RTX 3090`
    return re.sub(r"^nvidia\s+", "", " ".join(product.lower().split()))


_BY_PRODUCT = {_key(model.product): model for model in MODELS}


def find_product(product: str) -> GpuModel | None:
    """The model that nvidia-smi calls `product`, with or without NVIDIA before it; None for an unknown one."""
    return _BY_PRODUCT.get(_key(product))


def may_be(product: str, gpu_type: str) -> bool:
    """Whether a gres type matches a product name; for unknown products, whole words of the name must match."""
    model = find_product(product)
    if model and model.goes_by(gpu_type):
        return True
    words = re.findall("[a-z0-9]+", product.lower())
    # `rtx4090` in NVIDIA GeForce RTX 4090, and no `l4` in NVIDIA L40S
    runs = {"".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1)}
    return re.sub("[^a-z0-9]", "", gpu_type.lower()) in runs


def models_of(gpu_type: str) -> tuple[GpuModel, ...]:
    """The products that a gres type stands for: `a100`, or `a100_80gb` for one of its variants."""
    return tuple(model for model in MODELS if model.goes_by(gpu_type))


def profiles_of(gpu_type: str) -> dict[str, MigProfile]:
    """The MIG profiles of a gres type; {} if it has no MIG or is unknown."""
    return {name: profile for model in models_of(gpu_type) for name, profile in model.mig.items()}

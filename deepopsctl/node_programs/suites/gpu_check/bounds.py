"""What a GPU should give: what healthy cards gave, else their makers' figures, and how far below that is wrong.

Figures are those of NVIDIA's data sheets and architecture papers for each product: memory bandwidth, fp32 outside the
matrix units, dense bf16 with fp32 sums (half of what a sheet gives "with sparsity"; GeForce: half of the figure for
fp16 sums), NVLink in one direction for the whole GPU. They were set down from what is generally known; A40, L4, L40,
L40S, H100, H200, B200 and B300 were compared with published tables, the other rows were not checked again.

Shares of makers' figures are wide on purpose: they find what is broken (a memory stack gone, a link at half width, a
GPU that throttles). Outliers are detected by comparison with the other GPUs of the same model, which needs no table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Figures(NamedTuple):
    """One product, as NVML names it; 0 where there is no figure. GB/s, TFLOP/s, TFLOP/s, GB/s in one direction."""

    product: str
    memory: float
    fp32: float
    bf16: float = 0
    nvlink: float = 0
    # share of `bf16` that mma.sync can reach; 0: unknown
    mma: float = 1.0
    gddr: bool = False
    # Grace and its GPU talk over NVLink-C2C, whatever PCIe link NVML shows
    c2c: bool = False


# Hopper's full rate needs wgmma, which mma.sync stays well below: 0.66 on an H100, 0.65 on an H200.
_HOPPER_MMA = 0.65
# Data centre Blackwell needs tcgen05; what mma.sync reaches there is not published.
_BLACKWELL_MMA = 0

FIGURES = (
    Figures("Tesla P100-PCIE-12GB", 549, 9.3),
    Figures("Tesla P100-PCIE-16GB", 732, 9.3),
    Figures("Tesla P100-SXM2-16GB", 732, 10.6, nvlink=80),
    Figures("Tesla V100-PCIE-16GB", 900, 14.0),
    Figures("Tesla V100-PCIE-32GB", 900, 14.0),
    Figures("Tesla V100-SXM2-16GB", 900, 15.7, nvlink=150),
    Figures("Tesla V100-SXM2-32GB", 900, 15.7, nvlink=150),
    Figures("Tesla V100S-PCIE-32GB", 1134, 16.4),
    Figures("Tesla T4", 320, 8.1, gddr=True),
    Figures("Quadro RTX 6000", 672, 16.3, gddr=True),
    Figures("Quadro RTX 8000", 672, 16.3, gddr=True),
    Figures("NVIDIA GeForce RTX 2080 Ti", 616, 13.4, gddr=True),
    Figures("NVIDIA A2", 200, 4.5, 18, gddr=True),
    Figures("NVIDIA A10", 600, 31.2, 125, gddr=True),
    Figures("NVIDIA A30", 933, 10.3, 165),
    Figures("NVIDIA A40", 696, 37.4, 149.7, gddr=True),
    Figures("NVIDIA A100-PCIE-40GB", 1555, 19.5, 312),
    Figures("NVIDIA A100-SXM4-40GB", 1555, 19.5, 312, nvlink=300),
    Figures("NVIDIA A100 80GB PCIe", 1935, 19.5, 312),
    Figures("NVIDIA A100-SXM4-80GB", 2039, 19.5, 312, nvlink=300),
    Figures("NVIDIA A800-SXM4-80GB", 2039, 19.5, 312, nvlink=200),
    Figures("NVIDIA A800 80GB PCIe", 1935, 19.5, 312),
    Figures("NVIDIA RTX A4000", 448, 19.2, 76.7, gddr=True),
    Figures("NVIDIA RTX A5000", 768, 27.8, 111, gddr=True),
    Figures("NVIDIA RTX A6000", 768, 38.7, 154.8, gddr=True),
    Figures("NVIDIA GeForce RTX 3090", 936, 35.6, 71, gddr=True),
    Figures("NVIDIA L4", 300, 30.3, 121, gddr=True),
    Figures("NVIDIA L40", 864, 90.5, 181, gddr=True),
    Figures("NVIDIA L40S", 864, 91.6, 362, gddr=True),
    Figures("NVIDIA RTX 6000 Ada Generation", 960, 91.1, 364, gddr=True),
    Figures("NVIDIA GeForce RTX 4090", 1008, 82.6, 165, gddr=True),
    Figures("NVIDIA H20", 4000, 44, 148, nvlink=450, mma=_HOPPER_MMA),
    Figures("NVIDIA H100 PCIe", 2000, 51, 756, mma=_HOPPER_MMA),
    Figures("NVIDIA H100 80GB HBM3", 3350, 67, 989, nvlink=450, mma=_HOPPER_MMA),
    Figures("NVIDIA H100 NVL", 3900, 60, 835, mma=_HOPPER_MMA),
    Figures("NVIDIA H800", 3350, 67, 989, nvlink=200, mma=_HOPPER_MMA),
    Figures("NVIDIA H200", 4800, 67, 989, nvlink=450, mma=_HOPPER_MMA),
    Figures("NVIDIA H200 NVL", 4800, 60, 835, mma=_HOPPER_MMA),
    Figures("NVIDIA GH200 120GB", 4000, 67, 990, mma=_HOPPER_MMA, c2c=True),
    Figures("NVIDIA GH200 480GB", 4000, 67, 990, mma=_HOPPER_MMA, c2c=True),
    Figures("NVIDIA GH200 144G HBM3e", 4900, 67, 990, mma=_HOPPER_MMA, c2c=True),
    Figures("NVIDIA B200", 7700, 75, 2250, nvlink=900, mma=_BLACKWELL_MMA),
    Figures("NVIDIA GB200", 8000, 80, 2500, nvlink=900, mma=_BLACKWELL_MMA, c2c=True),
    Figures("NVIDIA B300 SXM6 AC", 7700, 75, 2250, nvlink=900, mma=_BLACKWELL_MMA),
    Figures("NVIDIA GB300", 8000, 80, 2500, nvlink=900, mma=_BLACKWELL_MMA, c2c=True),
    Figures("NVIDIA GeForce RTX 5090", 1792, 104.8, 209, gddr=True),
)


# What gpucheck gave on one healthy card of a product, by the check's name (driver 580.159.04, SXM, 700 W). They take
# the place of the maker's figures.
HEALTHY: dict[str, dict[str, float]] = {
    "NVIDIA H100 80GB HBM3": {
        "gpu-memory-copy": 2807, "gpu-memory-triad": 2894, "gpu-fp32": 63.9, "gpu-bf16": 656.8, "gpu-bf16-gemm": 862,
    },
    "NVIDIA H200": {
        "gpu-memory-copy": 3912, "gpu-memory-triad": 4112, "gpu-fp32": 63.9, "gpu-bf16": 638.3, "gpu-bf16-gemm": 880,
    },
}  # fmt: skip


class Shares(NamedTuple):
    """Below `warn` times the figure is a warning, below `fail` times it a failure."""

    warn: float
    fail: float


# ECC of GDDR lives in the memory itself and takes its part of the bandwidth
SHARES = {
    # of what a healthy card of the product gave; all others are of its maker's figures, or of what a network has
    "healthy": Shares(0.90, 0.70),
    # healthy ones: 0.84 to 0.86 on an H100, 0.81 to 0.86 on an H200
    "memory": Shares(0.75, 0.60),
    "memory (GDDR)": Shares(0.70, 0.55),
    "host": Shares(0.70, 0.45),
    "fp32": Shares(0.75, 0.55),
    "bf16": Shares(0.70, 0.50),
    "gemm": Shares(0.50, 0.35),
    "nvlink": Shares(0.70, 0.45),
    # of the sum over ports: for colliding routes, and a storage port counted as one of the GPUs'
    "rdma": Shares(0.50, 0.25),
    # NCCL over sockets lives from a few cores, and fills no fast port
    "tcp": Shares(0.30, 0.10),
}
# relative to the best of its model: how far behind a GPU counts as an outlier; the same for its own past
PEERS_SHARE = 0.90
PAST_SHARE = 0.90

# GB/s of one PCIe lane in one direction, after line coding
_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def _key(product: str) -> str:
    # drivers before 470 report `A100-SXM4-40GB`
    words = product.lower().split()
    return " ".join(words[1:] if words[:1] == ["nvidia"] else words)


_BY_PRODUCT = {_key(row.product): row for row in FIGURES}


def figures_of(product: str) -> Figures | None:
    """The row of a product; None for one that the table does not have."""
    return _BY_PRODUCT.get(_key(product))


def pcie_gb_s(generation: int | None, width: int | None) -> float:
    """What a link of this generation and width carries in one direction; 0 where that is not known."""
    return _LANE.get(generation or 0, 0.0) * (width or 0)


def markdown() -> Iterable[str]:
    """The table as the documentation shows it."""
    yield "| product | memory, GB/s | fp32, TFLOP/s | bf16, TFLOP/s | by mma.sync | NVLink, GB/s |"
    yield "|---|---|---|---|---|---|"
    for row in FIGURES:
        reached = "no bound" if row.bf16 and not row.mma else _shown(round(row.bf16 * row.mma, 1))
        yield (
            f"| {row.product} | {_shown(row.memory)} | {_shown(row.fp32)} | {_shown(row.bf16)} | {reached} | "
            f"{_shown(row.nvlink)} |"
        )
    yield ""
    yield "| healthy | copy, GB/s | triad, GB/s | fp32, TFLOP/s | bf16 by mma.sync | bf16 by cuBLAS |"
    yield "|---|---|---|---|---|---|"
    for product, values in HEALTHY.items():
        yield f"| {product} | {' | '.join(map(_shown, values.values()))} |"
    yield ""
    yield "| share of | warning below | failure below |"
    yield "|---|---|---|"
    for name, shares in SHARES.items():
        yield f"| {name} | {shares.warn:.0%} | {shares.fail:.0%} |"


def _shown(figure: float) -> str:
    return f"{figure:g}" if figure else "–"

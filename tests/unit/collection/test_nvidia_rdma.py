"""How RDMA devices reach GPUs, on trees like those of /sys and /proc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_files

paths = nodeside.load("nvidia.rdma")

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03"
SYMBOL = "0000000000000000 T ib_register_peer_memory_client\t[ib_core]\n"


def machine(
    root: Path, kernel: str = "6.12.0-13-amd64", module: str = OPEN, nics: int = 1, symbols: str = ""
) -> dict[str, Any]:
    """What a machine says of itself."""
    files = {
        "proc/sys/kernel/osrelease": kernel + "\n",
        "proc/kallsyms": "0000000000000000 t ib_register_peer_memory_client_odd\t[x]\n" + symbols,
        **({"proc/driver/nvidia/version": module, "sys/module/nvidia/version": "580.95.05"} if module else {}),
        **{f"sys/class/infiniband/mlx5_{number}/node_type": "1: CA" for number in range(nics)},
    }
    write_files(root, files)
    result: dict[str, Any] = paths.query(str(root))
    return result


@pytest.mark.parametrize(
    ("mode", "node", "load", "why"),
    [
        ("auto", {"symbols": SYMBOL}, False, "RDMA devices reach the GPUs by DMA-BUF"),
        (
            "auto",
            {"symbols": SYMBOL, "module": PROPRIETARY},
            True,
            "RDMA devices reach the GPUs by nvidia-peermem: DMA-BUF needs NVIDIA's open kernel modules",
        ),
        (
            "auto",
            {"symbols": SYMBOL, "kernel": "5.10.0-28-amd64"},
            True,
            "RDMA devices reach the GPUs by nvidia-peermem: DMA-BUF needs Linux 5.12, here is 5.10.0-28-amd64",
        ),
        # beside DMA-BUF where it is asked for
        ("always", {"symbols": SYMBOL}, True, None),
        ("auto", {"symbols": SYMBOL, "module": PROPRIETARY, "nics": 0}, False, "no RDMA device on this node"),
        ("auto", {"symbols": SYMBOL, "module": ""}, False, "no driver runs"),
        ("never", {"symbols": SYMBOL, "module": PROPRIETARY}, False, "nvidia-peermem is not wanted"),
    ],
)
def test_nvidia_peermem_is_loaded_where_dma_buf_can_not_be_used(
    tmp_path: Path, mode: str, node: dict[str, Any], load: bool, why: str | None
) -> None:
    result = paths.decide(mode, machine(tmp_path, **node))

    assert (result["load"], result["problem"]) == (load, "")
    assert why in (None, result["why"])


def test_where_neither_can_be_the_reason_is_named(tmp_path: Path) -> None:
    result = paths.decide("auto", machine(tmp_path, module=PROPRIETARY))

    assert result["load"] is False
    assert result["problem"] == (
        "mlx5_0 can't reach the GPUs: DMA-BUF needs NVIDIA's open kernel modules, "
        "and nvidia-peermem needs MLNX_OFED or DOCA-OFED, which is not there"
    )
    # one that runs needs no further test
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert paths.decide("auto", machine(tmp_path, module=PROPRIETARY))["load"] is True


def test_a_module_of_an_old_driver_and_a_containers_kernel_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nv_peer_mem").mkdir(parents=True)
    assert paths.decide("auto", machine(tmp_path, module=PROPRIETARY, symbols=SYMBOL))["load"] is False
    write_files(tmp_path, {"run/systemd/container": "podman"})
    result = paths.decide("always", machine(tmp_path, module=PROPRIETARY, symbols=SYMBOL))

    assert (result["load"], result["problem"]) == (False, "")

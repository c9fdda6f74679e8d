"""How RDMA devices reach GPUs, on trees like those of /sys and /proc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside

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
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    found: dict[str, Any] = paths.query(str(root))
    return found


def test_open_modules_and_a_new_kernel_use_dma_buf(tmp_path: Path) -> None:
    assert paths.decide("auto", machine(tmp_path, symbols=SYMBOL)) == {
        "load": False,
        "why": "RDMA devices reach the GPUs by DMA-BUF",
        "problem": "",
    }


@pytest.mark.parametrize(
    ("machine_is", "why"),
    [
        ({"module": PROPRIETARY}, "DMA-BUF needs NVIDIA's open kernel modules"),
        ({"kernel": "5.10.0-28-amd64"}, "DMA-BUF needs Linux 5.12, here is 5.10.0-28-amd64"),
    ],
)
def test_without_dma_buf_nvidia_peermem_is_loaded(tmp_path: Path, machine_is: dict[str, Any], why: str) -> None:
    verdict = paths.decide("auto", machine(tmp_path, symbols=SYMBOL, **machine_is))

    assert verdict == {"load": True, "why": f"RDMA devices reach the GPUs by nvidia-peermem: {why}", "problem": ""}


def test_where_neither_can_be_the_reason_is_said(tmp_path: Path) -> None:
    verdict = paths.decide("auto", machine(tmp_path, module=PROPRIETARY))

    assert verdict["load"] is False
    assert verdict["problem"] == (
        "mlx5_0 can't reach the GPUs: DMA-BUF needs NVIDIA's open kernel modules, "
        "and nvidia-peermem needs MLNX_OFED or DOCA-OFED, which is not there"
    )


def test_it_is_loaded_beside_dma_buf_where_it_is_asked_for(tmp_path: Path) -> None:
    assert paths.decide("always", machine(tmp_path, symbols=SYMBOL))["load"] is True


def test_one_that_runs_needs_no_further_proof(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)

    assert paths.decide("auto", machine(tmp_path, module=PROPRIETARY))["load"] is True


def test_a_module_of_before_driver_470_is_left_to_whoever_loads_it(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nv_peer_mem").mkdir(parents=True)

    assert paths.decide("auto", machine(tmp_path, module=PROPRIETARY, symbols=SYMBOL))["load"] is False


def test_machines_without_rdma_without_a_driver_or_unwilling_are_left_alone(tmp_path: Path) -> None:
    alone = machine(tmp_path / "alone", module=PROPRIETARY, nics=0, symbols=SYMBOL)
    bare = machine(tmp_path / "bare", module="", symbols=SYMBOL)
    unwilling = machine(tmp_path / "unwilling", module=PROPRIETARY, symbols=SYMBOL)

    assert paths.decide("auto", alone)["why"] == "no RDMA device on this node"
    assert paths.decide("auto", bare)["why"] == "no driver runs"
    assert paths.decide("never", unwilling)["why"] == "nvidia-peermem is not wanted"


def test_a_containers_kernel_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("podman")

    verdict = paths.decide("always", machine(tmp_path, module=PROPRIETARY, symbols=SYMBOL))

    assert (verdict["load"], verdict["problem"]) == (False, "")

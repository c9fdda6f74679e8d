"""How RDMA devices reach the memory of GPUs (GPUDirect RDMA): by the kernel's DMA-BUF, or by nvidia-peermem.

NVIDIA recommends DMA-BUF, which takes its open kernel modules and Linux 5.12. Without them nvidia-peermem takes its
place, which needs a function of MLNX_OFED or DOCA-OFED that Linux itself does not have.
Sources: NVIDIA's documentation of GPUDirect RDMA in the GPU Operator (prerequisites of both), nv_peer_memory issue 84.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_node

DMA_BUF_SINCE = (5, 12)
PEER_FUNCTION = "ib_register_peer_memory_client"


def query(root: str = "/") -> dict[str, Any]:
    """What there is: RDMA devices, the kernel, NVIDIA's modules, what nvidia-peermem needs, and whether it runs."""
    directory = os.path.join(root, "sys/class/infiniband")
    return {
        "container": os.path.exists(os.path.join(root, nvidia_node.CONTAINER.lstrip("/"))),
        "devices": sorted(os.listdir(directory)) if os.path.isdir(directory) else [],
        "kernel": node_files.text(os.path.join(root, "proc/sys/kernel/osrelease")),
        "driver": nvidia_node.loaded(root),
        "peer_function": _has_symbol(os.path.join(root, "proc/kallsyms"), PEER_FUNCTION),
        "peermem": os.path.isdir(os.path.join(root, "sys/module/nvidia_peermem")),
        # what it was called before driver 470
        "nv_peer_mem": os.path.isdir(os.path.join(root, "sys/module/nv_peer_mem")),
    }


def _has_symbol(path: str, name: str) -> bool:
    try:
        with open(path) as stream:
            return any(line.split()[2:3] == [name] for line in stream)
    except OSError:
        return False


def decide(wanted: str, there: Mapping[str, Any]) -> dict[str, Any]:
    """{load, why, problem}: whether nvidia-peermem is to be loaded; `wanted` is auto, always or never."""
    nothing = _nothing_to_do(wanted, there)
    if nothing:
        return {"load": False, "why": nothing, "problem": ""}
    lacking = _lacking_for_dma_buf(there)
    if wanted == "auto" and not lacking:
        return {"load": False, "why": "RDMA devices reach the GPUs by DMA-BUF", "problem": ""}
    if there["peermem"] or there["peer_function"]:
        why = f"by nvidia-peermem: {lacking or 'it is asked for'}"
        return {"load": True, "why": f"RDMA devices reach the GPUs {why}", "problem": ""}
    without = "nvidia-peermem needs MLNX_OFED or DOCA-OFED, which is not there"
    problem = without if not lacking else f"{there['devices'][0]} can't reach the GPUs: {lacking}, and {without}"
    return {"load": False, "why": problem, "problem": problem}


def _nothing_to_do(wanted: str, there: Mapping[str, Any]) -> str:
    if there["container"]:
        return "a container has its host's kernel"
    if wanted == "never":
        return "nvidia-peermem is not wanted"
    if not there["devices"]:
        return "no RDMA device on this node"
    if there["nv_peer_mem"]:
        return "RDMA devices reach the GPUs by nv_peer_mem"
    return "" if there["driver"]["version"] else "no driver runs"


def _lacking_for_dma_buf(there: Mapping[str, Any]) -> str:
    """What DMA-BUF lacks here, '' where it serves."""
    if not there["driver"]["open"]:
        return "DMA-BUF needs NVIDIA's open kernel modules"
    numbers = tuple(int(number) for number in re.findall(r"\d+", there["kernel"])[:2])
    return "" if numbers >= DMA_BUF_SINCE else f"DMA-BUF needs Linux 5.12, here is {there['kernel']}"

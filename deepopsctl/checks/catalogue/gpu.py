"""The checks of GPUs by name, as docs/reference/gpucheck.md defines them; and those of a sustained load."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_DRIVER, _HEALTH, _LINKS, _RATES, _TOGETHER, _JOBS = (
    "GPU driver", "GPU health", "GPU links", "GPU rates", "GPUs together", "GPU jobs",
)  # fmt: skip
_SLOW = (
    "compare clocks, power and temperature with its neighbours' in this report; if it stays slow after a reset, "
    "swap it with a good one: the fault follows the card, or stays with the slot"
)

GPU = {
    "gpu-nodes": Entry(
        _JOBS, "GPU nodes", "There are nodes with GPUs to test.",
        "declare GPUs in cluster.yml where nodes have some",
    ),
    "gpu-job": Entry(
        _JOBS, "measuring job", "A job with all GPUs of the node ran, and gpucheck answered from it.",
        "see the message; `scontrol show node NODE` says why jobs don't start there", "job",
    ),
    "gpu-allocation": Entry(
        _JOBS, "a GPU for each job", "As many jobs with one GPU as there are GPUs, at once, get different ones.",
        "compare gres.conf with the device files; `scontrol show job -d ID` shows what Slurm chose", "own GPU",
    ),
    "gpu-isolation": Entry(
        _JOBS, "GPUs closed to others", "No job can open the device file of another GPU (tested).",
        "ConstrainDevices=yes in cgroup.conf, File= in gres.conf, slurmd restarted", "closed",
    ),
    "gpu-visible": Entry(
        _JOBS, "GPUs that jobs see", "NVIDIA's driver shows each job the GPUs that Slurm gave it, and no other.",
        "ConstrainDevices=yes in cgroup.conf; are devices restricted elsewhere, too (containers, hooks)?",
        "seen",
    ),
    "gpu-driver": Entry(
        _DRIVER, "driver", "The driver answers, and its libraries have its version.",
        "`deepopsctl deploy nvidia` installs a driver; after an update of it, reboot the drained node", "driver",
    ),
    "gpu-driver-agrees": Entry(
        _DRIVER, "driver version", "The node has the driver that most nodes have.",
        "set `nvidia_driver_branch`, then `deepopsctl deploy nvidia` with the node drained", "same driver",
    ),
    "gpu-cuda-agrees": Entry(
        _DRIVER, "CUDA version", "The node's driver serves the CUDA version that most nodes have.",
        "CUDA's version comes with the driver: install one branch on all nodes", "same CUDA",
    ),
    "gpu-count": Entry(
        _DRIVER, "number of GPUs", "The node has as many GPUs as cluster.yml says, and all of them open.",
        "see `nvidia-smi -L`, `lspci -d 10de:` and `dmesg | grep -i xid` on the node; after a hardware change, "
        "write it to cluster.yml", "count",
    ),
    "gpu-opens": Entry(
        _DRIVER, "GPU opens", "The driver can open the GPU.",
        "drain the node and reboot it; a GPU that falls off the bus again must be reseated or replaced", "opens",
    ),
    "gpu-model": Entry(
        _DRIVER, "model", "The model has bounds; others are compared with their peers and their past only.",
        "nothing is wrong with the GPU; report its data sheet to get bounds for it", "model",
    ),
    "gpu-persistence": Entry(
        _DRIVER, "persistence mode", "The driver stays loaded between jobs.",
        "`systemctl enable --now nvidia-persistenced` on the node; `deepopsctl deploy nvidia` does it", "persistence",
    ),
    "gpu-mig": Entry(
        _DRIVER, "MIG mode", "MIG is as it will be after the next reset.",
        "drain the node, then `nvidia-smi --gpu-reset`", "MIG",
    ),
    "gpu-dcgm": Entry(
        _HEALTH, "DCGM's diagnosis", "DCGM (`dcgmi diag --run 1`) finds nothing wrong with the node and its GPUs.",
        "do what DCGM says; on the drained node `dcgmi diag --run 3` tries the hardware under load", "DCGM",
    ),
    "gpu-ecc": Entry(
        _HEALTH, "ECC", "ECC is on and has met no uncorrected error since the driver was loaded.",
        "drain the node and reset the GPU; if errors come back, have the card replaced", "ECC",
    ),
    "gpu-rows": Entry(
        _HEALTH, "remapped rows", "No row or page of the memory waits to be remapped, and none could not be.",
        "pending: reset the GPU when it is idle; failed: have the card replaced", "rows",
    ),
    "gpu-memory-test": Entry(
        _HEALTH, "memory test", "Every word of the free memory kept what was written to it, under five patterns.",
        "take the GPU out of service: its results can't be trusted; have the card replaced", "memory test",
    ),
    "gpu-clocks": Entry(
        _HEALTH, "clocks", "Neither heat nor the power supply slowed the GPU down under load.",
        "look at fans, dust, the air at the inlet and the power supplies; `nvidia-smi -q -d PERFORMANCE` under load",
        "clocks",
    ),
    "gpu-power": Entry(
        _HEALTH, "power limit", "The power limit is not below the factory's.",
        "if this is not intended: `nvidia-smi -pl WATTS`", "power",
    ),
    "gpu-temperature": Entry(
        _HEALTH, "temperature", "The GPU stayed below the temperature at which it slows down.",
        "look at fans, dust and the air at the inlet", "temperature",
    ),
    "gpu-pcie": Entry(
        _LINKS, "PCIe link", "Generation and lanes of the link are what slot and card can do.",
        "reseat card, riser and cable; look into the BIOS for the slot's generation and bifurcation", "PCIe",
    ),
    "gpu-nvlink": Entry(
        _LINKS, "NVLink", "All NVLinks of the GPU are up.",
        "`nvidia-smi nvlink -s`; with NVSwitches, `systemctl status nvidia-fabricmanager`", "NVLink",
    ),
    "gpu-fabric": Entry(
        _LINKS, "NVSwitch fabric", "The GPU has joined its NVSwitch fabric, without trouble.",
        "`systemctl status nvidia-fabricmanager`; its version must be the driver's", "fabric",
    ),
    "gpu-to-device": Entry(
        _LINKS, "host to GPU", "Pinned host memory reaches the GPU as fast as its slot allows, unharmed.",
        "see the PCIe link above; a slow direction alone is often NUMA: compare `nvidia-smi topo -m`", "to GPU",
    ),
    "gpu-from-device": Entry(
        _LINKS, "GPU to host", "The GPU reaches pinned host memory as fast as its slot allows, unharmed.",
        "see the PCIe link above; a slow direction alone is often NUMA: compare `nvidia-smi topo -m`", "from GPU",
    ),
    "gpu-memory-copy": Entry(
        _RATES, "memory copy", "Device memory is copied at the rate of the model, of its peers and of its own past.",
        _SLOW, "copy",
    ),
    "gpu-memory-triad": Entry(
        _RATES, "memory triad", "Two arrays are read and one is written at the rate of the model.", _SLOW, "triad",
    ),
    "gpu-fp32": Entry(
        _RATES, "fp32 rate", "Single precision runs at the rate of the model, with right results.", _SLOW, "fp32",
    ),
    "gpu-bf16": Entry(
        _RATES, "bf16 rate", "The matrix units (mma.sync) run at the rate of the model, with right results.",
        _SLOW, "bf16",
    ),
    "gpu-bf16-gemm": Entry(
        _RATES, "bf16 matrix product", "cuBLAS multiplies large matrices at the rate of the model.", _SLOW, "GEMM",
    ),
    "gpu-peers": Entry(
        _TOGETHER, "GPU to GPU", "Every GPU reaches every other one; over NVSwitches at the rate of the model.",
        "the heat map shows the pair; `nvidia-smi topo -m` and `nvidia-smi nvlink -s` show the way between them",
        "pairs",
    ),
    "gpu-all-reduce": Entry(
        _TOGETHER, "all-reduce", "NCCL sums over all GPUs of the node; over NVSwitches at the rate of the model.",
        "run it with NCCL_DEBUG=INFO to see its transport; compare GPU to GPU above", "all-reduce",
    ),
    "gpu-all-reduce-nodes": Entry(
        _TOGETHER, "all-reduce of nodes", "NCCL sums over GPUs of equal nodes, as fast as their ports allow.",
        "NCCL_DEBUG=INFO shows the network it uses; are ports between nodes open, and the interface names equal?",
        "between nodes",
    ),
}  # fmt: skip

_BURNT, _BURNT_GPU = "Under load", "GPUs under load"
_AIR = "look at fans, dust, the air at the inlet; compare with its neighbours in this report"

BURNIN: dict[str, Entry] = {
    "burn-completed": Entry(
        _BURNT, "ran to its end", "The node was loaded for the whole time, and reported it.",
        "see the message, then `journalctl -k` and the service processor's log of the node; run it again", "to its end",
    ),
    "burn-cpu": Entry(
        _BURNT, "cores", "Every core computed the expected results, over and over.",
        "take the node out of service: its results can't be trusted; look at voltage, BIOS and the processor", "cores",
    ),
    "burn-memory": Entry(
        _BURNT, "memory", "Every byte kept what was written to it, under five patterns, while the cores worked.",
        "take the node out of service and test its DIMMs one by one", "memory",
    ),
    "burn-cpu-rate": Entry(
        _BURNT, "speed of the cores", "The cores are as fast at the end as at the beginning, and as each other.",
        _AIR + "; see the power limits in the BIOS", "CPU speed",
    ),
    "burn-cpu-heat": Entry(
        _BURNT, "heat of the cores", "The processors were not throttled for heat.", _AIR, "CPU heat",
    ),
    "burn-hardware": Entry(
        _BURNT, "hardware errors", "No new errors of memory (EDAC), processors (machine checks) or PCIe (AER).",
        "see `journalctl -k` and `ras-mc-ctl --errors` on the node: they name the DIMM, the socket or the slot",
        "errors",
    ),
    "burn-kernel-log": Entry(
        _BURNT, "kernel log", "The kernel logged no hardware errors.", "see `journalctl -k` on the node",
        "kernel log",
    ),
    "burn-gpu": Entry(
        _BURNT_GPU, "right results", "Every result was right, every word kept what was written, the GPU stayed there.",
        "take the GPU out of service: its results can't be trusted; `dmesg | grep -i xid`, then replace it", "results",
    ),
    "burn-gpu-rate": Entry(
        _BURNT_GPU, "speed", "The GPU is as fast at the end as at the beginning, and as the others of its node.",
        _AIR, "speed",
    ),
    "burn-gpu-heat": Entry(
        _BURNT_GPU, "heat", "Neither heat nor the power supply slowed the GPU down.",
        _AIR + "; `nvidia-smi -q -d PERFORMANCE` under load", "heat",
    ),
    "burn-gpu-errors": Entry(
        _BURNT_GPU, "memory errors", "No new ECC error, and no row had to be remapped.",
        "drain the node, reset the GPU and run it again; if they come back, have the card replaced", "ECC",
    ),
}  # fmt: skip

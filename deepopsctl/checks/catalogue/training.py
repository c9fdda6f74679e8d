"""The checks of the suite `training` by name, as docs/reference/validate-training.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_GROUP = "Training"
_SAME_LOSS = "give the loss of a single process with the same batches."
_LOOK = "`sbatch train.sh {}` with the examples shows the whole error; NCCL's: `NCCL_DEBUG=INFO`"

TRAINING = {
    "training-software": Entry(
        _GROUP, "software", "A job finds torch, in the cluster's environment or in the node's Python.",
        "declare an environment with torch: docs/deploy/environments.md",
    ),
    "training-node": Entry(
        _GROUP, "one node", f"DDP's processes on one node, with all its GPUs or two on its CPUs, {_SAME_LOSS}",
        "on the node: `deepopsctl validate gpu --limit NODE`; `dmesg` for errors of GPUs and memory",
    ),
    "training-ddp": Entry(_GROUP, "DDP", f"torch's DDP on all nodes: they {_SAME_LOSS}", _LOOK.format("ddp")),
    "training-fsdp": Entry(
        _GROUP, "FSDP", f"A model in parts on all nodes: they {_SAME_LOSS}", _LOOK.format("fsdp"),
    ),
    "training-accelerate": Entry(
        _GROUP, "Accelerate", f"Accelerate on all nodes: they {_SAME_LOSS}", _LOOK.format("accelerate"),
    ),
    "training-deepspeed": Entry(
        _GROUP, "DeepSpeed", f"DeepSpeed's ZeRO 2 on all nodes: they {_SAME_LOSS}", _LOOK.format("deepspeed"),
    ),
    "training-mpi": Entry(
        _GROUP, "MPI", f"Gradients averaged by MPI on all nodes: they {_SAME_LOSS}",
        "`deepopsctl validate smoke` tests MPI without torch; `srun --mpi=list`",
    ),
    "training-rate": Entry(
        _GROUP, "rate", "Samples a second of each process while a node trains alone, next to the others and its past.",
        "the node is slow: `deepopsctl validate gpu --limit NODE`; its clocks and its cooling",
    ),
    "training-efficiency": Entry(
        _GROUP, "efficiency", "What remains of that rate when all nodes train together, next to earlier runs.",
        "the network: `deepopsctl validate network`; NCCL's choice of it: `NCCL_DEBUG=INFO`",
    ),
}  # fmt: skip
PER_NODE = frozenset({"training-software", "training-node", "training-rate"})

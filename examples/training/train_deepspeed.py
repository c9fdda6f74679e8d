"""DeepSpeed: ZeRO's second stage shares gradients and the optimizer's state among the processes.

In a job, on several nodes: sbatch train.sh deepspeed
"""

from __future__ import annotations

import os

import deepspeed
import torch
import torch.distributed as dist
import training_loop as common
from torch import nn


def main() -> None:
    options = common.arguments()
    rank, world = common.rank_and_world()
    device = common.make_device()
    if device.type == "cpu":
        # else every start compiles it for minutes, and needs a C++ compiler; gloo does the same without
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if device.type == "cuda" else "gloo")
    model = common.make_model(options.width)
    settings = {
        "train_batch_size": options.batch,
        "train_micro_batch_size_per_gpu": options.batch // world,
        "zero_optimization": {"stage": 2},
        # DeepSpeed's own default clips gradients; 0 leaves them as they are
        "gradient_clipping": 0.0,
        # this example brings an optimizer of its own
        "zero_allow_untested_optimizer": True,
    }
    engine, *_others = deepspeed.initialize(model=model, optimizer=common.make_optimizer(model), config=settings)
    first = 0
    # DeepSpeed's checkpoint is a directory, with a part of each process: as many processes have to continue
    if options.checkpoint and os.path.isdir(options.checkpoint):
        _path, state = engine.load_checkpoint(options.checkpoint)
        first = (state or {}).get("step", 0)

    def step(inputs, targets, stop):
        loss = nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        shared = torch.stack([loss.detach(), torch.tensor(float(stop), device=device)])
        dist.all_reduce(shared)
        return shared[0].item() / world, shared[1].item() > 0

    def save(number):
        engine.save_checkpoint(options.checkpoint, client_state={"step": number})

    common.run_loop(
        "deepspeed", options, common.make_loader(options, rank, world), device, step,
        save=save if options.checkpoint else None, first=first, rank=rank, world=world,
    )  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

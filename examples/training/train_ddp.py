"""DDP: every process has the whole model, and the gradients are averaged. The usual way while the model fits on a GPU.

Alone: python train_ddp.py. In a job, on several nodes: sbatch train.sh ddp
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import training_loop as common
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    options = common.arguments()
    rank, world = common.rank_and_world()
    device = common.make_device()
    if world > 1:
        # NCCL between GPUs, gloo between CPUs
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = common.make_model(options.width).to(device)
    optimizer = common.make_optimizer(model)
    # each process reads the checkpoint; one of them writes it
    saved = common.load_file(options.checkpoint)
    if saved:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    parallel = DistributedDataParallel(model) if world > 1 else model

    def step(inputs, targets, stop):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        # averages the gradients of all processes
        loss.backward()
        optimizer.step()
        # the mean of all losses; above 0 in the second place if any process is to stop
        shared = torch.stack([loss.detach(), torch.tensor(float(stop), device=device)])
        if world > 1:
            dist.all_reduce(shared)
        return shared[0].item() / world, shared[1].item() > 0

    def save(number):
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
            common.save_file(state, options.checkpoint)

    common.run_loop(
        "ddp", options, common.make_loader(options, rank, world), device, step,
        save=save if options.checkpoint else None, first=saved.get("step", 0), rank=rank, world=world,
    )  # fmt: skip
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

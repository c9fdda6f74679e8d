"""FSDP: each process has a part of the model and of the optimizer's state. For models that do not fit on one GPU.

In a job, on several nodes: sbatch train.sh fsdp
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import training_loop as common
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    options = common.arguments()
    rank, world = common.rank_and_world()
    device = common.make_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = common.make_model(options.width).to(device)
    mesh = init_device_mesh(device.type, (world,))
    # each layer by itself: only one is put together at a time
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # after sharding: the optimizer has the parts alone
    optimizer = common.make_optimizer(model)
    # the checkpoint is that of a whole model: another number of processes can continue from it
    saved = common.load_file(options.checkpoint)
    if saved:
        set_state_dict(
            model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"],
            options=StateDictOptions(full_state_dict=True),
        )  # fmt: skip

    def step(inputs, targets, stop):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        shared = torch.stack([loss.detach(), torch.tensor(float(stop), device=device)])
        dist.all_reduce(shared)
        return shared[0].item() / world, shared[1].item() > 0

    def save(number):
        # all processes take part; the first one gets the whole
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        of_model, of_optimizer = get_state_dict(model, optimizer, options=whole)
        if rank == 0:
            common.save_file({"model": of_model, "optimizer": of_optimizer, "step": number}, options.checkpoint)

    common.run_loop(
        "fsdp", options, common.make_loader(options, rank, world), device, step,
        save=save if options.checkpoint else None, first=saved.get("step", 0), rank=rank, world=world,
    )  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

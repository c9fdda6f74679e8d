"""Accelerate (Hugging Face): the same program on one process and on many; `prepare` makes model and data distributed.

In a job, on several nodes: sbatch train.sh accelerate
"""

from __future__ import annotations

import torch
import training_loop as common
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    options = common.arguments()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    rank, world, device = accelerator.process_index, accelerator.num_processes, accelerator.device
    model = common.make_model(options.width)
    optimizer = common.make_optimizer(model)
    loader = DataLoader(common.make_data(options), batch_size=options.batch // world, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    saved = common.load_file(options.checkpoint)
    if saved:
        accelerator.unwrap_model(model).load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    def step(inputs, targets, stop):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        shared = torch.stack([loss.detach(), torch.tensor(float(stop), device=device)])
        shared = accelerator.reduce(shared, "sum")
        return shared[0].item() / world, shared[1].item() > 0

    def save(number):
        if accelerator.is_main_process:
            state = {
                "model": accelerator.unwrap_model(model).state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": number,
            }
            common.save_file(state, options.checkpoint)

    common.run_loop(
        "accelerate", options, loader, device, step, save=save if options.checkpoint else None,
        first=saved.get("step", 0), rank=rank, world=world,
    )  # fmt: skip
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""MPI: the gradients are averaged by MPI_Allreduce. One process a task; no torchrun, no ports.

In a job, on several nodes: srun --mpi=pmix python train_mpi.py, or mpirun python train_mpi.py
"""

from __future__ import annotations

import torch
import training_loop as common
from mpi4py import MPI
from torch import nn


def main() -> None:
    options = common.arguments()
    world_of_mpi = MPI.COMM_WORLD
    rank, world = world_of_mpi.rank, world_of_mpi.size
    device = torch.device("cpu")
    model = common.make_model(options.width)
    optimizer = common.make_optimizer(model)
    saved = common.load_file(options.checkpoint)
    if saved:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    def step(inputs, targets, stop):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        for parameter in model.parameters():
            # in place: NumPy's view of the gradient is the gradient
            world_of_mpi.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
            parameter.grad /= world
        optimizer.step()
        loss_of_all = world_of_mpi.allreduce(loss.item()) / world
        return loss_of_all, world_of_mpi.allreduce(int(stop)) > 0

    def save(number):
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
            common.save_file(state, options.checkpoint)

    common.run_loop(
        "mpi", options, common.make_loader(options, rank, world), device, step,
        save=save if options.checkpoint else None, first=saved.get("step", 0), rank=rank, world=world,
    )  # fmt: skip


if __name__ == "__main__":
    main()

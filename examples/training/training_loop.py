"""What the examples of this directory share: a small model, made-up data, the loop, checkpoints.

Copy the directory, and replace `make_model` and `MadeUpData` by your own. The rest is what a job on a cluster needs:

* The global batch is the same whatever the number of processes is, so the loss is that of a single process.
* A checkpoint is written from time to time, and when the job's time is up; a requeued job continues from it.
* A checkpoint is written under another name and renamed: there is never half of one.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FEATURES = 32
# steps that are not counted in the rate: the first ones load libraries and allocate memory
WARM_UP = 5
# the exit status of a program that has saved because its time is up: train.sh has the job requeued
TIME_IS_UP = 85


def arguments() -> argparse.Namespace:
    """Options of all examples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="steps in all, those of earlier starts included")
    parser.add_argument("--batch", type=int, default=256, help="samples a step, of all processes together")
    parser.add_argument("--width", type=int, default=256, help="size of the model")
    parser.add_argument("--data", default="", help="samples to train with, as torch.save wrote them; else made up")
    parser.add_argument("--checkpoint", default="", help="file to continue from, and to save to")
    parser.add_argument("--save-every", type=int, default=50, help="steps between two checkpoints")
    parser.add_argument("--until", type=float, default=0, help="save and end at this time (seconds since 1970)")
    return parser.parse_args()


def rank_and_world() -> tuple[int, int]:
    """The number of this process, and how many there are; as torchrun sets them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def make_device() -> torch.device:
    """This process's own GPU, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def make_model(width: int) -> nn.Module:
    """The same weights in every process."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Plain SGD: its result depends on the mean of the gradients alone."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class MadeUpData(Dataset):
    """Samples with a pattern that can be learned; or those of a file."""

    def __init__(self, count: int, path: str = "") -> None:
        if path:
            self.inputs, self.targets = torch.load(path, map_location="cpu", weights_only=True)
            return
        random = torch.Generator().manual_seed(2)
        self.inputs = torch.randn(count, FEATURES, generator=random)
        self.targets = torch.sin(self.inputs.sum(dim=1, keepdim=True))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


def make_data(options: argparse.Namespace) -> MadeUpData:
    """Ten batches, over and over."""
    return MadeUpData(10 * options.batch, options.data)


def make_loader(options: argparse.Namespace, rank: int, world: int) -> DataLoader:
    """This process's share of each batch. `shuffle=True` is usual; here every run has to give the same loss."""
    if options.batch % world:
        raise SystemExit(f"--batch {options.batch} can't be divided among {world} processes")
    data = make_data(options)
    sampler = DistributedSampler(data, world, rank, shuffle=False, drop_last=True)
    return DataLoader(data, batch_size=options.batch // world, sampler=sampler, drop_last=True)


def run_loop(method, options, loader, device, step, save=None, first=0, rank=0, world=1):
    """Train from step `first` on, and print the result as the last line.

    `step(inputs, targets, stop)` is one step: it returns the global loss, and whether any process is to stop.
    `save(number)` writes a checkpoint.
    """
    number, loss, began, counted = first, float("nan"), 0.0, 0
    batches = endless(loader, first)
    while number < options.steps:
        if number - first == WARM_UP:
            wait_for(device)
            began, counted = time.perf_counter(), number
        inputs, targets = next(batches)
        time_is_up = bool(options.until) and time.time() > options.until
        loss, stop = step(inputs.to(device), targets.to(device), time_is_up)
        number += 1
        if save and (stop or number % options.save_every == 0):
            save(number)
        if stop:
            if rank == 0:
                print(f"time is up: saved step {number}", flush=True)
            raise SystemExit(TIME_IS_UP)
    wait_for(device)
    seconds = time.perf_counter() - began if began else 0.0
    if save:
        save(number)
    if rank == 0:
        rate = (number - counted) * options.batch / seconds if seconds else 0.0
        result = {
            "method": method, "node": os.environ.get("SLURMD_NODENAME", ""), "processes": world, "device": device.type,
            "first": first, "steps": number, "loss": loss, "samples_per_s": round(rate, 1), "torch": torch.__version__,
        }  # fmt: skip
        print("result: " + json.dumps(result), flush=True)


def endless(loader, first: int):
    """Batches from that step on, again from the start after the last one."""
    skip = first % max(len(loader), 1)
    while True:
        for number, batch in enumerate(loader):
            if number >= skip:
                yield batch
        skip = 0


def wait_for(device: torch.device) -> None:
    """GPUs work on while the program runs ahead; a time is right only after that."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def save_file(state: dict, path: str) -> None:
    """Never half a checkpoint."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def load_file(path: str) -> dict:
    """What an earlier start has saved; {} at the first."""
    if not path or not os.path.exists(path):
        return {}
    return torch.load(path, map_location="cpu", weights_only=True)

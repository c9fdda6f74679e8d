"""`partition-stats`: for each partition, how many nodes and GPUs are free, and how many jobs run and wait."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, Counter as Counted
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..._shared import slurm_client, slurm_output
from ..._shared.node_states import NO_FREE_GPUS
from ..job_report import asking
from ..job_report.asking import Run, UnansweredError

OK, UNKNOWN = 0, 1
# wide enough for Slurm's longest names; columns are cut by place
_WIDTHS = {"Partition": 64, "Time": 16, "NodeList": 256, "StateLong": 32, "Gres": 256, "GresUsed": 256}
NODES = slurm_client.sinfo("--Node", "--Format=" + ",".join(f"{name}:{width}" for name, width in _WIDTHS.items()))
JOBS = slurm_client.squeue("%P|%T", "--array", "--states=PENDING,RUNNING")
_HEADER = ("Partition", "Max time", "Nodes", "Free", "GPUs free/total", "Running", "Queued")


@dataclass
class Partition:
    """What is counted in one partition; GPUs by type."""

    limit: str
    nodes: int = 0
    free: int = 0
    gpus: Counted[str] = field(default_factory=Counter)
    free_gpus: Counted[str] = field(default_factory=Counter)
    jobs: Counted[str] = field(default_factory=Counter)


def main(arguments: list[str] | None = None, run: Run = asking.run_command) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="partition-stats", description=__doc__.partition(": ")[2])
    parser.add_argument("partition", nargs="*", metavar="PARTITION", help="only these")
    options = parser.parse_args(arguments)
    try:
        partitions = count(run(NODES), run(JOBS))
    except UnansweredError as error:
        sys.stderr.write(f"error: {error}\n")
        return UNKNOWN
    names = [name for name in partitions if not options.partition or name.rstrip("*") in options.partition]
    if not names:
        sys.stderr.write("error: Slurm has no such partition: see `sinfo -s`\n")
        return UNKNOWN
    for line in table([_row(name, partitions[name]) for name in names]):
        sys.stdout.write(line + "\n")
    return OK


def count(nodes: str, jobs: str) -> dict[str, Partition]:
    """Partitions by name, in sinfo's order, the default one with `*`; from what NODES and JOBS print."""
    partitions: dict[str, Partition] = {}
    for line in nodes.splitlines():
        name, limit, _, state, gres, used = _cut(line)
        partition = partitions.setdefault(name, Partition(limit))
        partition.nodes += 1
        partition.free += state == "idle"
        total = slurm_output.gpus(gres)
        partition.gpus.update(total)
        if not state.startswith(NO_FREE_GPUS) and not state.endswith("*"):
            partition.free_gpus.update(total)
            partition.free_gpus.subtract(slurm_output.gpus(used))
    for line in jobs.splitlines():
        names, _, state = line.rpartition("|")
        # a waiting job may name several partitions
        for name in names.split(","):
            for spelt in (name, name + "*"):
                if spelt in partitions:
                    partitions[spelt].jobs[state] += 1
    return partitions


def _cut(line: str) -> list[str]:
    cells, place = [], 0
    for width in _WIDTHS.values():
        cells.append(slurm_output.present(line[place : place + width].strip()))
        place += width
    return cells


def _row(name: str, partition: Partition) -> list[str]:
    gpus = ", ".join(
        f"{gpu_type + ' ' if gpu_type else ''}{max(partition.free_gpus[gpu_type], 0)}/{total}"
        for gpu_type, total in sorted(partition.gpus.items())
    )
    jobs = partition.jobs
    counts = [partition.nodes, partition.free, gpus or "-", jobs["RUNNING"], jobs["PENDING"]]
    return [name, partition.limit, *map(str, counts)]


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned columns: text to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in (_HEADER, *rows)) for column in range(len(_HEADER))]
    for row in (_HEADER, *rows):
        cells = [
            text.ljust(width) if column in (0, 4) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths))
        ]
        yield "  ".join(cells).rstrip()

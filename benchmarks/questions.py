"""How long commands take that find nothing new, against the floor: one Python on each node by parallel ssh.

The nodes must be deployed. Each command runs once before it is measured, so that it is known what to ask; then all take
turns with the floor, so that the host's load is the same.

    python -m benchmarks.questions DIR [--rounds 3] [--commands "deploy slurm,plan slurm,status,doctor"]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import ALONE
from deepopsctl.cluster.way import Way

FLOOR = ["/usr/bin/python3", "-c", "pass"]


def one_python_each(directory: Path) -> None:
    """One Python on each node, over connections of its own."""
    place = ClusterDir(directory.resolve())
    cluster = place.cluster()
    way = Way(place, cluster, cluster.access.user, ALONE)
    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        for done in pool.map(lambda node: subprocess.run(way.command(node, FLOOR, as_root=True)), cluster.nodes):
            done.check_returncode()


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and the CPU seconds of the processes that it started."""
    began, used = time.monotonic(), _used()
    work()
    return time.monotonic() - began, _used() - used


def _used() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commands", default="deploy slurm,plan slurm,status,doctor")
    options = parser.parse_args()

    def command(words: str) -> Callable[[], object]:
        argv = [sys.executable, "-m", "deepopsctl", "-C", str(options.directory), *words.split()]
        # bytecode is kept, as where deepopsctl is installed
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return lambda: subprocess.run(argv, capture_output=True, check=True, env=kept)

    works: dict[str, Callable[[], object]] = {words: command(words) for words in options.commands.split(",")}
    for work in works.values():
        work()
    works = {"floor": lambda: one_python_each(options.directory), **works}
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            costs[name].append(cost(work))
    for name, each in costs.items():
        took, used = zip(*each, strict=True)
        listed = " ".join(f"{seconds:.1f}" for seconds in took)
        print(f"{name:14} {median(took):5.1f} s  CPU {median(used):4.1f} s   ({listed})")


if __name__ == "__main__":
    main()

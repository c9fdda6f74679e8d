"""What the benchmarks share: one measurement for each size of cluster, a line of a table for each, and the clean-up."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DEEPOPSCTL = str(Path(sys.executable).parent / "deepopsctl")
LAB = os.environ.get("DEEPOPSCTL_BENCH_LAB", "bench")
# of a command that reports: something failed on a node, or one did not answer
FINDINGS = (1, 4)
Result = TypeVar("Result", bound="DataclassInstance")


def output_of(*argv: str, text: str | None = None, findings: bool = False) -> str:
    """Run a command; its output, or the benchmark ends with it. `findings` of a report are noted, and end nothing."""
    done = subprocess.run(list(argv), capture_output=True, text=True, input=text, timeout=3000)
    if findings and done.returncode in FINDINGS:
        print(f"    {' '.join(argv)} ended with {done.returncode}:\n{done.stderr}", flush=True)
    elif done.returncode:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def parser(description: str, sizes: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    made = argparse.ArgumentParser(description=description.partition("\n")[0])
    made.add_argument("--sizes", default=sizes, help="compute nodes of each cluster; default: %(default)s")
    made.add_argument("--os", default="debian13")
    made.add_argument("--json", type=Path, metavar="FILE")
    return made


def print_table(
    options: argparse.Namespace, head: str, measure: Callable[[int, Path], Result], line: Callable[[Result], str]
) -> None:
    """Measure each size and print its line; nothing of the lab is left."""
    directory = Path(tempfile.mkdtemp(prefix="deepopsctl-bench-"))
    results = []
    try:
        print(f"{options.os}, {os.cpu_count()} CPUs shared by all nodes and the control machine; seconds")
        print(head)
        for size in (int(word) for word in options.sizes.split(",")):
            results.append(measure(size, directory))
            print(line(results[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    finally:
        output_of(DEEPOPSCTL, "lab", "down", "--name", LAB)
        shutil.rmtree(directory)

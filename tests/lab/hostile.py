"""Jobs whose names and comments try to be something else for their readers."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.lab.harness import LabCluster

NAMES = (
    # lines as squeue would print them: of a job that is not there, of nodes that are none, of options for scancel
    "a\n1|root|RUNNING|gpu|n[x]|x",
    "b\n1|root|RUNNING|gpu|n[0-2999999]|x",
    "c\n--partition=gpu|root|RUNNING|gpu|gpu01,gpu02|x",
    "d\nNodeName=gpu01 State=DOWN Reason=x [root@2026-11-24T00:00:00]",
    "\x1b[2J\x1b]0;title\x07\x9b31m\u202e",
    "bar|bar\x1f\x1e\r\t",
    """"quotes' `id` $(id) <script>alert(1)</script> {{ 7 * 7 }}""",
    '"} 1\ndeepops_slurm_up 0\nx{y="',
    "--all",
    "[red]long[/red]" + "L" * 900,
)


def submit(cluster: LabCluster, name: str, *options: str) -> str:
    """Submit a job of any name; its number."""
    words = ["sbatch", "--parsable", "--mem=10M", f"--job-name={name}", f"--comment={name}", *options, "--wrap=true"]
    script = base64.b64encode(shlex.join(words).encode("utf-8", "surrogateescape")).decode()
    return cluster.user("ctl1", f"echo {script} | base64 -d | bash")


@contextmanager
def waiting_jobs(cluster: LabCluster, names: Sequence[str] = NAMES) -> Iterator[list[str]]:
    """Such jobs, held; gone at the end."""
    numbers = [submit(cluster, name, "--hold") for name in names]
    try:
        yield numbers
    finally:
        cluster.root("ctl1", f"scancel {' '.join(numbers)}", ok=False)

"""What the playbook hands to the suite, and the limits of its jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..._shared import checks, slurm_output
from ..._shared.slurm_output import Record

SUITE = "gpu"
# the checks of this suite
check = partial(checks.check, SUITE)
failed = partial(checks.failed, SUITE)
skipped = partial(checks.skipped, SUITE)

# what is measured after the GPUs one by one, and a process that hangs in the driver (seconds)
_REST_S = 60


class Declared(NamedTuple):
    """A node's GPUs in cluster.yml: how many cards, gres.conf's device files, and whether they are cut into slices."""

    cards: int
    files: Sequence[str] = ()
    sliced: bool = False


class Inputs(NamedTuple):
    """`archive` has gpucheck, as base64 text; `gpu_timeout` is the longest that one GPU may take (seconds).

    `cublas` and `nccl` are paths on the nodes, '' where these libraries were not asked for.
    """

    cluster: str
    user: str
    tested: Sequence[str]
    declared: Mapping[str, Declared]
    archive: str
    gpu_timeout: float
    queue_timeout: float
    cublas: str = ""
    nccl: str = ""
    reservation: str = ""

    @property
    def libraries(self) -> dict[str, str]:
        """gpucheck's options for the libraries that are there."""
        return {name: path for name, path in (("cublas", self.cublas), ("nccl", self.nccl)) if path}

    def seconds(self, gpus: int) -> float:
        """The longest that all measurements on a node may take: each GPU, then all of them together."""
        return (gpus + 2) * self.gpu_timeout + _REST_S

    def minutes(self, gpus: int, partition: Record) -> int:
        """The time limit of that job: never more than the partition allows."""
        wanted = -(-int(self.seconds(gpus)) // 60)
        most = slurm_output.minutes(partition.get("MaxTime", ""))
        return wanted if most is None else max(1, min(wanted, most))


def declared(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Declared]:
    """By node, from the module's parameter."""
    return {
        name: Declared(int(entry["cards"]), _texts(entry.get("files")), bool(entry.get("sliced")))
        for name, entry in entries.items()
    }


def _texts(listed: Any) -> list[str]:
    return [str(entry) for entry in listed or ()]


def library(directory: str, libraries: Mapping[str, Any], name: str) -> str:
    """Where the module python_wheels keeps the file of a library that is loaded; '' where it was not asked for."""
    if name not in libraries:
        return ""
    entry = libraries[name]
    return os.path.join(directory, f"{name}-{entry['version']}", os.path.basename(entry["files"][0]))

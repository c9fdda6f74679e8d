"""What the playbook hands to the suite, and the limits of its jobs."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import slurmtext
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.slurmtext import Record

# what is measured after the GPUs one by one, and a process that hangs in the driver (seconds)
_REST_S = 60


class Declared(NamedTuple):
    """A node's GPUs in cluster.yml: how many cards, gres.conf's device files, and whether they are cut into slices."""

    cards: int
    files: Sequence[str] = ()
    sliced: bool = False


class Inputs(NamedTuple):
    """`program` is the packed gpucheck as base64 text; `gpu_timeout` the longest that one GPU may take (seconds).

    `cublas` and `nccl` are paths on the nodes, '' where these libraries were not asked for.
    """

    cluster: str
    user: str
    tested: Sequence[str]
    declared: Mapping[str, Declared]
    program: str
    gpu_timeout: float
    queue_timeout: float
    cublas: str = ""
    nccl: str = ""

    @property
    def libraries(self) -> Dict[str, str]:
        """gpucheck's options for the libraries that are there."""
        return {name: path for name, path in (("cublas", self.cublas), ("nccl", self.nccl)) if path}

    def seconds(self, gpus: int) -> float:
        """The longest that all measurements on a node may take: each GPU, then all of them together."""
        return (gpus + 2) * self.gpu_timeout + _REST_S

    def minutes(self, gpus: int, partition: Record) -> int:
        """The time limit of that job: never more than the partition allows."""
        wanted = -(-int(self.seconds(gpus)) // 60)
        most = slurmtext.minutes(partition.get("MaxTime", ""))
        return wanted if most is None else max(1, min(wanted, most))


def declared(entries: Mapping[str, Mapping[str, Any]]) -> Dict[str, Declared]:
    """By node, from the module's parameter."""
    return {
        name: Declared(int(entry["cards"]), _texts(entry.get("files")), bool(entry.get("sliced")))
        for name, entry in entries.items()
    }


def _texts(listed: Any) -> List[str]:
    return [str(entry) for entry in listed or ()]

"""The entries of a node list, before checks across entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepopsctl.model.cluster import Gpus, Partition, Role


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One entry of a node list: nodes with common attributes."""

    where: str
    names: str
    within: str = ""
    addresses: str = ""
    roles: frozenset[Role] = frozenset()
    port: int = 0
    gpus: Gpus | None = None
    features: tuple[str, ...] = ()
    slurm: Mapping[str, str] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """The label of a field of this entry in messages; '' for entries that `where` identifies."""
        return f"{self.within}.{name}" if self.within else ""


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """One partition as written; `nodes` is an expression or `all`."""

    where: str
    within: str
    partition: Partition
    nodes: str

"""What a node list says, entry by entry, before anything is checked across entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepopsctl.model.cluster import Gpus, Partition, Role


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One entry of a node list: some machines and what they have in common."""

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
        """How a message names a part of this entry; the place alone says enough where there is but one."""
        return f"{self.within}.{name}" if self.within else ""


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """One partition as written; `nodes` is an expression or `all`."""

    where: str
    within: str
    partition: Partition
    nodes: str

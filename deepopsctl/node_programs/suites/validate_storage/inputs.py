"""What the playbook hands to the suite: the entries of `storage`, node by node, and how far trials may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .mounts import ANY_TYPE


class Expected(NamedTuple):
    """One entry as a node should have it.

    `source`, `fstype` and `options` are those of the mount unit. `shared`: all nodes see the same files. `squash` is
    what becomes of root (`root`, `all`, `none`; '' where that is the server's own matter).
    """

    name: str
    type: str
    path: str
    source: str
    fstype: str
    options: tuple[str, ...] = ()
    shared: bool = False
    squash: str = ""
    user_writable: str = ""
    # what the server has to hold users to; only there
    quota: Mapping[str, Any] = {}
    # the server, where it has nothing mounted itself
    only_quota: bool = False

    @property
    def read_only(self) -> bool:
        """Whether no user may write through this mount."""
        return "ro" in self.options

    @property
    def served_here(self) -> bool:
        """Whether this node is the server: it has its own directory there, not a mount of NFS."""
        return self.type == "nfs" and self.fstype in ("", "none")

    @property
    def type_text(self) -> str:
        """Its type in words: for a disk what is on it."""
        return self.type if self.fstype in ANY_TYPE else self.fstype


class Bounds(NamedTuple):
    """How much a node writes for a rate (MiB), how long a rate is measured, how long an act may take (seconds)."""

    size_mib: int = 64
    seconds: float = 5.0
    answer_s: float = 15.0
    # so many nodes are measured one by one as well; more than that only all at once
    alone: int = 8
    files: int = 500


class Seen(NamedTuple):
    """A node's own result for an entry: its promise to see names and data of other nodes (seconds)."""

    name_bound: float = 0.0
    data_bound: float = 0.0
    options: tuple[str, ...] = ()
    served_here: bool = False


def expected(entries: Sequence[Mapping[str, Any]]) -> list[Expected]:
    """From a module's parameter."""
    return [Expected(**{**entry, "options": tuple(entry.get("options") or ())}) for entry in entries]


def by_node(wanted: Sequence[Mapping[str, Any]]) -> dict[str, list[Expected]]:
    """Entries with their `nodes`, turned round."""
    entries: dict[str, list[Expected]] = {}
    for entry in wanted:
        (one,) = expected([{key: value for key, value in entry.items() if key != "nodes"}])
        for node in entry["nodes"]:
            entries.setdefault(node, []).append(one)
    return entries


def seen(reports: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Seen]]:
    """What the nodes' own checks returned, by node and entry."""
    return {
        node: {name: Seen(**{**entry, "options": tuple(entry["options"])}) for name, entry in entries.items()}
        for node, entries in reports.items()
    }

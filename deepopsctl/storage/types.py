"""What a storage type defines: its keys, its checks, and what a node needs. The table is in registry.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deepopsctl.model.storage import Mount, Needs, Platform, StorageType
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section

# The key of the entry that is at fault ('' for the entry itself), and what is wrong with it.
Fault = tuple[str, RefusedError]


def refused(key: str, check: Callable[[str], object], text: str) -> Iterator[Fault]:
    """The fault of a value that `check` refuses."""
    try:
        check(text)
    except RefusedError as refusal:
        yield key, refusal


@dataclass(frozen=True, slots=True)
class Site:
    """What checks need to know of the cluster: addresses by node, and the NFS servers."""

    addresses: Mapping[str, str]
    servers: frozenset[str]

    def node_named(self, host: str) -> str:
        """The cluster node with this name or address; '' for none."""
        wanted = host.lower()
        by_name = (name for name in self.addresses if name.lower() == wanted)
        by_address = (name for name, address in self.addresses.items() if address and address.lower() == wanted)
        return next(by_name, "") or next(by_address, "")


def not_served(_mount: Mount, _site: Site) -> str:
    """For types without a managed server."""
    return ""


def no_conflicts(_mounts: Sequence[Mount]) -> Iterable[tuple[Mount, Fault]]:
    """For types whose entries are independent of each other."""
    return ()


@dataclass(frozen=True, slots=True)
class TypeHandler:
    """One type.

    `section` is the mapping named as the type. `check` yields the errors of an entry that was read completely, and
    `needs` returns what a node of a platform needs for it: pure, and called with the source as it is mounted.
    `owned` are mount options that deepopsctl writes itself, with the keys to use instead. `server` returns the node of
    the cluster that serves the entry.
    """

    section: type[Section]
    check: Callable[[Mount, Site], Iterable[Fault]]
    needs: Callable[[Mount, Platform], Needs]
    owned: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    server: Callable[[Mount, Site], str] = not_served
    # without a source there is nothing to mount
    needs_source: bool = True
    # conflicts between entries of this type
    find_conflicts: Callable[[Sequence[Mount]], Iterable[tuple[Mount, Fault]]] = no_conflicts


@dataclass(frozen=True, slots=True)
class SharedOption:
    """A mapping that entries of several types may have: `quota`, `purge`."""

    section: type[Section]
    check: Callable[[Mount, Site], Iterable[Fault]]
    types: frozenset[StorageType]
    # conflicts with other entries, of whatever type
    find_conflicts: Callable[[Sequence[Mount]], Iterable[tuple[Mount, Fault]]] = no_conflicts

"""What every type of storage brings: its own keys, its checks, what a node needs. registry.py has the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deepopsctl.model.storage import Mount, Needs, Platform, StorageType
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Section

# The key of the entry that is at fault ('' for the entry itself), and what is wrong with it.
Fault = tuple[str, RefusedError]


@dataclass(frozen=True, slots=True)
class Site:
    """What a check may have to know of the cluster: machines with their addresses, and those that serve NFS."""

    addresses: Mapping[str, str]
    servers: frozenset[str]

    def node_named(self, host: str) -> str:
        """The cluster's machine that has this name or address; '' for none."""
        wanted = host.lower()
        by_name = (name for name in self.addresses if name.lower() == wanted)
        by_address = (name for name, address in self.addresses.items() if address and address.lower() == wanted)
        return next(by_name, "") or next(by_address, "")


def not_served(_mount: Mount, _site: Site) -> str:
    """For types that no machine of the cluster serves by our doing."""
    return ""


def no_conflicts(_mounts: Sequence[Mount]) -> Iterable[tuple[Mount, Fault]]:
    """For types whose entries have nothing to do with each other."""
    return ()


@dataclass(frozen=True, slots=True)
class TypeHandler:
    """One type.

    `section` is the mapping named as the type. `check` says what is wrong with an entry that is otherwise sound, and
    `needs` what a node of some platform needs for it: pure, and asked with a source that is reached as it stands.
    `owned` are mount options that deepopsctl writes itself, with what says them instead. `server` is the machine of
    the cluster that serves the entry.
    """

    section: type[Section]
    check: Callable[[Mount, Site], Iterable[Fault]]
    needs: Callable[[Mount, Platform], Needs]
    owned: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    server: Callable[[Mount, Site], str] = not_served
    # without a source there is nothing to mount
    needs_source: bool = True
    # what entries of this type say that can't be said together
    find_conflicts: Callable[[Sequence[Mount]], Iterable[tuple[Mount, Fault]]] = no_conflicts


@dataclass(frozen=True, slots=True)
class SharedOption:
    """A mapping that entries of several types may have beside their own: `quota`, `purge`."""

    section: type[Section]
    check: Callable[[Mount, Site], Iterable[Fault]]
    types: frozenset[StorageType]
    # what is wrong with it beside the other entries, of whatever type
    find_conflicts: Callable[[Sequence[Mount]], Iterable[tuple[Mount, Fault]]] = no_conflicts

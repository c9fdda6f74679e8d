"""Builder of the storage section: entries are read, checked as a whole against the nodes, then frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deepopsctl.model.storage import Mount
from deepopsctl.policy.builder import Place
from deepopsctl.storage.nfs import EXPORT_KEYS, split_source
from deepopsctl.storage.registry import shared_options, type_handlers
from deepopsctl.storage.types import Site
from deepopsctl.storage.values import is_below
from deepopsctl.text.node_sets import expand, fold_in_order, shorten
from deepopsctl.text.problems import Problems, RefusedError

EVERYTHING = "all"
# what a server does once for an export, however many entries mount it
ONCE = ("quota", "snapshots")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its place, those of its keys, and whether each of its values could be read."""

    place: Place
    places: Mapping[str, str]
    mount: Mount
    is_sound: bool


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """The nodes of the cluster: addresses and roles by name, in order; `servers` are the NFS servers."""

    addresses: Mapping[str, str]
    roles: Mapping[str, frozenset[str]]
    servers: frozenset[str]
    # a node could not be read: missing nodes are then not reported as unknown
    incomplete: bool = False


class StorageDraft:
    """The section as it was read."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        # an empty list unmounts everything; without a list, storage is not managed
        self.declared = False

    def finish(self, nodes: ClusterNodes, problems: Problems) -> tuple[Mount, ...]:
        """The frozen mounts; errors are added to `problems`."""
        return _Checker(self.entries, nodes, problems).check()


class _Checker:
    def __init__(self, entries: Sequence[Entry], nodes: ClusterNodes, problems: Problems) -> None:
        self.entries = entries
        self.cluster_nodes = nodes
        self.problems = problems
        self.site = Site(nodes.addresses, nodes.servers)

    def check(self) -> tuple[Mount, ...]:
        handlers = type_handlers()
        names: dict[str, str] = {}
        done: list[tuple[Entry, Mount]] = []
        for entry in self.entries:
            mount = replace(entry.mount, server=handlers[entry.mount.type].server(entry.mount, self.site))
            mount = replace(mount, nodes=self._nodes(entry, mount))
            if mount.name in names:
                self._refuse(entry, "name", RefusedError(f"{mount.name} is already the name of storage at "
                             f"{names[mount.name]}", "give each entry a name of its own"))  # fmt: skip
            names.setdefault(mount.name, entry.place.where)
            if entry.is_sound:
                self._check_entry(entry, mount)
            self._check_paths(entry, mount, done)
            self._check_same_export(entry, mount, done)
            done.append((entry, mount))
        self._check_together(done)
        return tuple(mount for _, mount in done)

    def _check_entry(self, entry: Entry, mount: Mount) -> None:
        for key, refusal in type_handlers()[mount.type].check(mount, self.site):
            self._refuse(entry, key, refusal)
        for name, part in shared_options().items():
            for key, refusal in part.check(mount, self.site) if name in mount.parts else ():
                self._refuse(entry, key, refusal)

    def _check_together(self, done: Sequence[tuple[Entry, Mount]]) -> None:
        entries = {mount.name: entry for entry, mount in done}
        for name, handler in type_handlers().items():
            same_type = [mount for entry, mount in done if entry.is_sound and mount.type is name]
            for mount, (key, refusal) in handler.find_conflicts(same_type):
                self._refuse(entries[mount.name], key, refusal)
        sound = [mount for entry, mount in done if entry.is_sound]
        for part in shared_options().values():
            for mount, (key, refusal) in part.find_conflicts(sound):
                self._refuse(entries[mount.name], key, refusal)

    def _nodes(self, entry: Entry, mount: Mount) -> tuple[str, ...]:
        """The nodes that mount it, in the order of cluster.yml."""
        if not mount.written:
            return tuple(name for name in self.cluster_nodes.addresses if name != mount.server)
        try:
            words = expand(mount.written)
        except RefusedError as refusal:
            self._refuse(entry, "nodes", refusal)
            return ()
        label = shorten(mount.written)
        unknown = [word for word in words if not self._members(word)]
        if unknown and not self.cluster_nodes.incomplete:
            what = f"{label} has no node {shorten(fold_in_order(unknown))}"
            self._refuse(entry, "nodes", RefusedError(what, "add it under nodes:, shorten the range, or name a role"))
        if len(set(words)) < len(words):
            self._refuse(entry, "nodes", RefusedError(f"{label} names a node twice", "list every node once"))
        wanted = {name for word in words for name in self._members(word)}
        return tuple(name for name in self.cluster_nodes.addresses if name in wanted)

    def _members(self, word: str) -> Sequence[str]:
        """The node of that name, else the nodes with that role."""
        if word in self.cluster_nodes.addresses:
            return (word,)
        if word == EVERYTHING:
            return tuple(self.cluster_nodes.addresses)
        return tuple(name for name, roles in self.cluster_nodes.roles.items() if word in roles)

    def _check_paths(self, entry: Entry, mount: Mount, before: Sequence[tuple[Entry, Mount]]) -> None:
        """On one node every path is used once, and the outer of two nested paths is listed first."""
        for other_entry, other in before:
            shared = [name for name in mount.nodes if name in set(other.nodes)]
            if not shared:
                continue
            where = shorten(fold_in_order(shared))
            if other.path == mount.path:
                what = f"{mount.path} is already {other.name}'s on {where}, at {other_entry.place.where}"
                self._refuse(entry, "path", RefusedError(what, "give each its own path, or other nodes"))
            elif is_below(other.path, mount.path):
                what = f"{mount.path} would cover {other.name}'s {other.path} on {where}"
                self._refuse(entry, "path", RefusedError(what, f"list {mount.name} before {other.name}"))

    def _check_same_export(self, entry: Entry, mount: Mount, before: Sequence[tuple[Entry, Mount]]) -> None:
        """Entries that mount the same export have the same export options, quotas and snapshots."""
        path = split_source(mount.source)[1] if mount.server else ""
        for other_entry, other in before if path else ():
            if other.server != mount.server or split_source(other.source)[1] != path:
                continue
            for key in _differing(mount, other):
                what = f"differs from {other.name}'s at {other_entry.place.where}, which is the same export"
                self._refuse(entry, key, RefusedError(what, "write the same in both entries"))

    def _refuse(self, entry: Entry, key: str, refusal: RefusedError) -> None:
        place = key
        while place and place not in entry.places:
            # for a missing key the line of its parent is reported
            place = place.rpartition(".")[0]
        where = entry.places.get(place, entry.place.where)
        label = ".".join(part for part in (entry.place.within, key) if part)
        self.problems.refuse(where, label, refusal)


def _differing(one: Mount, other: Mount) -> Iterator[str]:
    """Keys of an export that differ between two entries."""
    for key, default in EXPORT_KEYS.items():
        if one.settings.get(key, default) != other.settings.get(key, default):
            yield f"nfs.{key}"
    for key in ONCE:
        if key in one.parts and key in other.parts and one.parts[key] != other.parts[key]:
            yield key

"""Edits of cluster.yml: add and remove nodes, change addresses; the file is restored if nodes could not change.

Text in, text out. Every result is parsed and compared with the request: an edit does exactly that or is refused.
Comments, order, quotes and style of the rest stay.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import attributes
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import read_file, write_atomic
from deepopsctl.gpus.nvlink import KEY as NVLINK
from deepopsctl.model.cluster import Cluster, Node, Partition, Role
from deepopsctl.text.node_sets import expand, fold_in_order, pair
from deepopsctl.text.yaml_editor import YamlText, items_of, value_of

WHERE = "cluster.yml"


@dataclass(frozen=True, slots=True)
class NewNodes:
    """Nodes to add: names with addresses ('' if the name resolves), and their attributes.

    `model` has their roles, GPUs, features; `like` is an existing node with the same attributes, '' for none.
    """

    nodes: tuple[tuple[str, str], ...]
    model: Node
    like: str = ""
    partitions: tuple[str, ...] = ()


def add_nodes(text: str, new: NewNodes) -> str:
    """The text with nodes added: to the entry of `like`, or in a new entry after it."""
    edit = _Edit.parse(text)
    edit.add(new)
    wanted = [replace(new.model, name=name, address=address) for name, address in new.nodes]
    result = edit.source.result()
    _check(result, (*edit.before.nodes, *wanted))
    return result


def remove_nodes(text: str, names: Iterable[str]) -> str:
    """The text without these nodes; entries that become empty are removed."""
    gone = frozenset(names)
    edit = _Edit.parse(text)
    edit.remove(gone)
    result = edit.source.result()
    _check(result, [node for node in edit.before.nodes if node.name not in gone])
    return result


def set_address(text: str, name: str, address: str) -> str:
    """The text with the new address of one node."""
    edit = _Edit.parse(text)
    edit.set_address(name, address)
    result = edit.source.result()
    nodes = edit.before.nodes
    _check(result, [replace(node, address=address) if node.name == name else node for node in nodes])
    return result


@dataclass(slots=True)
class SpecFile:
    """The original text, and the edits written since."""

    directory: ClusterDir
    text: str
    written: bool = False

    @classmethod
    def open(cls, directory: ClusterDir) -> SpecFile:
        """Read it with its own line ends; it was validated before."""
        return cls(directory, read_file(directory.spec).decode("utf-8"))

    def write(self, text: str) -> Cluster:
        """Write cluster.yml atomically and update the inventory; a text that does not parse is not written."""
        spec = parse_spec(text.removeprefix("\ufeff").replace("\r\n", "\n"), self.directory.spec.name)
        cluster = self.directory.with_people(spec)
        if text != self.text or self.written:
            self._store(text)
            self.written = True
        self.directory.refresh_inventory(cluster)
        return cluster

    def restore(self) -> bool:
        """Restore the original text; returns whether anything had been written."""
        if not self.written:
            return False
        self._store(self.text)
        self.written = False
        self.directory.refresh_inventory(self.directory.cluster())
        return True

    def _store(self, text: str) -> None:
        path = self.directory.spec
        write_atomic(path, text, stat.S_IMODE(path.stat().st_mode))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One item of `nodes:`: its index, its names with addresses."""

    index: int
    node: yaml.MappingNode
    nodes: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Edit:
    source: YamlText
    before: Cluster
    nodes: yaml.SequenceNode
    entries: list[_Entry] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str) -> _Edit:
        before = parse_spec(text.removeprefix("\ufeff").replace("\r\n", "\n"), WHERE)
        source = YamlText.read(text)
        nodes = value_of(source.root, "nodes")
        if not isinstance(nodes, yaml.SequenceNode):
            raise InputError.single(WHERE, "nodes: is not a list", "see docs/reference/cluster-yml.md")
        entries = [
            _Entry(index, item, _entry_nodes(item))
            for index, item in enumerate(nodes.value)
            if isinstance(item, yaml.MappingNode)
        ]
        return cls(source, before, nodes, entries)

    def add(self, new: NewNodes) -> None:
        """Record the edits that add nodes."""
        similar = self._entry_of(new.like) or self._last_of(new.model.roles)
        if new.like and self._can_join(similar, new):
            self._write(similar, _merged(similar.nodes, new.nodes))
        else:
            entry: dict[str, object] = {"names": fold_in_order(name for name, _ in new.nodes)}
            if new.nodes[0][1]:
                entry["addresses"] = fold_in_order(address for _, address in new.nodes)
            self.source.insert_after(self.nodes, similar.index, entry | attributes(new.model))
        names = [name for name, _ in new.nodes]
        for partition, scalar in self._partitions():
            if partition.name in new.partitions:
                self._add_to("partitions", scalar, names)
        # in the same rack as `like`; storage for roles and for all nodes includes the new ones already
        for section in (NVLINK, "storage"):
            for _, scalar in self._named(section):
                if new.like in expand(scalar.value):
                    self._add_to(section, scalar, names)
        if space := self._space():
            for key in (key for key, _ in space.value if new.like in expand(key.value)):
                self.source.set_scalar(key, _joined(key.value, names), in_flow=bool(space.flow_style))

    def remove(self, gone: frozenset[str]) -> None:
        """Record the edits that remove nodes."""
        unknown = sorted(gone - {node.name for node in self.before.nodes})
        if unknown:
            raise InputError.single(WHERE, f"has no node {fold_in_order(unknown)}", "see its `nodes:`")
        self.source.remove_items(
            self.nodes, [entry.index for entry in self.entries if gone.issuperset(dict(entry.nodes))]
        )
        for entry in self.entries:
            left = [(name, address) for name, address in entry.nodes if name not in gone]
            if 0 < len(left) < len(entry.nodes):
                self._write(entry, left)
        for partition, scalar in self._partitions():
            self._remove_from("partitions", f"the partition {partition.name}", scalar, gone)
        for section, what in (("storage", "storage"), (NVLINK, "NVLink domain"), ("maintenance", "maintenance")):
            for name, scalar in self._named(section):
                self._remove_from(section, f"the {what} {name}", scalar, gone)
        if space := self._space():
            self._shorten_space(space, gone)

    def _shorten_space(self, space: yaml.MappingNode, gone: frozenset[str]) -> None:
        """Record the edits that take nodes out of the node sets with a size; a set without a node left goes."""
        sets = {key: [name for name in expand(key.value) if name not in gone] for key, _ in space.value}
        self.source.remove_items(space, [index for index, left in enumerate(sets.values()) if not left])
        for key, left in sets.items():
            if 0 < len(left) < len(expand(key.value)):
                self.source.set_scalar(key, _refold(key.value, left), in_flow=bool(space.flow_style))

    def _remove_from(self, section: str, what: str, scalar: yaml.ScalarNode, gone: frozenset[str]) -> None:
        """Record the edit that shortens a list of nodes; it must not become empty."""
        names = expand(scalar.value)
        left = [name for name in names if name not in gone]
        if not left:
            raise InputError.single(
                f"{WHERE}:{scalar.start_mark.line + 1}",
                f"{what} would have no node left",
                f"give it other nodes or remove it first; then `deepopsctl node remove {fold_in_order(names)}`",
            )
        if len(left) < len(names):
            self._set(section, scalar, _refold(scalar.value, left))

    def set_address(self, name: str, address: str) -> None:
        """Record the edit that changes a node's address."""
        entry = self._entry_of(name)
        if entry is None or not value_of(entry.node, "addresses"):
            raise InputError.single(
                WHERE,
                f"{name} has no address there: its name is looked up",
                "make the name resolve to the new host, or give the node an address in cluster.yml",
            )
        self._write(entry, [(known, address if known == name else old) for known, old in entry.nodes])

    def _entry_of(self, name: str) -> _Entry | None:
        return next((entry for entry in self.entries if name in dict(entry.nodes)), None)

    def _last_of(self, roles: frozenset[Role]) -> _Entry:
        """The last entry with these roles, or the last of all."""
        same = {node.name for node in self.before.nodes if node.roles == roles}
        candidates = [entry for entry in self.entries if same & dict(entry.nodes).keys()]
        return (candidates or self.entries)[-1]

    def _can_join(self, entry: _Entry, new: NewNodes) -> bool:
        """Whether the nodes differ from those of the entry only in names and addresses."""
        known = {node.name: node for node in self.before.nodes}
        first = known[entry.nodes[0][0]]
        same = attributes(first) == attributes(new.model)
        return same and bool(first.address) == bool(new.nodes[0][1])

    def _write(self, entry: _Entry, nodes: Sequence[tuple[str, str]]) -> None:
        for key, values in (("names", [name for name, _ in nodes]), ("addresses", [a for _, a in nodes])):
            scalar = value_of(entry.node, key)
            if isinstance(scalar, yaml.ScalarNode):
                text = _refold(scalar.value, values)
                if text != scalar.value:
                    in_flow = bool(entry.node.flow_style or self.nodes.flow_style)
                    self.source.set_scalar(scalar, text, in_flow=in_flow)

    def _partitions(self) -> list[tuple[Partition, yaml.ScalarNode]]:
        """Partitions with a list of nodes, and that list; not those with `all`."""
        pairs = []
        known = {partition.name: partition for partition in self.before.partitions}
        for item in items_of(value_of(self.source.root, "partitions")):
            name, nodes = value_of(item, "name"), value_of(item, "nodes")
            listed = isinstance(nodes, yaml.ScalarNode) and nodes.value.strip().lower() != "all"
            if isinstance(name, yaml.ScalarNode) and isinstance(nodes, yaml.ScalarNode) and listed:
                pairs.append((known[name.value], nodes))
        return pairs

    def _named(self, section: str) -> list[tuple[str, yaml.ScalarNode]]:
        """Names and node lists of a section's entries, if they have a list."""
        pairs = []
        for item in items_of(value_of(self.source.root, section)):
            name, nodes = value_of(item, "name"), value_of(item, "nodes")
            if isinstance(name, yaml.ScalarNode) and isinstance(nodes, yaml.ScalarNode) and nodes.value.strip():
                pairs.append((name.value, nodes))
        return pairs

    def _space(self) -> yaml.MappingNode | None:
        """`space` of `job_directories`, if it has a size for each node set."""
        section = value_of(self.source.root, "job_directories")
        space = value_of(section, "space") if section else None
        return space if isinstance(space, yaml.MappingNode) else None

    def _add_to(self, section: str, scalar: yaml.ScalarNode, names: Sequence[str]) -> None:
        self._set(section, scalar, _joined(scalar.value, names))

    def _set(self, section: str, scalar: yaml.ScalarNode, value: str) -> None:
        # the entry or the whole section may be in flow style
        entries = value_of(self.source.root, section)
        items = [item for item in items_of(entries) if scalar is value_of(item, "nodes")]
        in_flow = any(bool(node.flow_style) for node in (entries, *items) if isinstance(node, yaml.CollectionNode))
        self.source.set_scalar(scalar, value, in_flow=in_flow)


def _entry_nodes(item: yaml.MappingNode) -> tuple[tuple[str, str], ...]:
    names, addresses = value_of(item, "names"), value_of(item, "addresses")
    text = str(names.value) if names else ""
    return pair(text, str(addresses.value)) if addresses else tuple((name, "") for name in expand(text))


def _merged(known: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Known and new nodes: sorted if the known ones are, else the new ones last."""
    in_order = [name for name, _ in known] == sorted((name for name, _ in known), key=_natural)
    everyone = [*known, *new]
    return sorted(everyone, key=lambda node: _natural(node[0])) if in_order else everyone


def _joined(expression: str, names: Sequence[str]) -> str:
    """A node set with more nodes."""
    merged = _merged([(name, "") for name in expand(expression)], [(name, "") for name in names])
    return _refold(expression, [name for name, _ in merged])


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    parts = re.split(r"(\d+)", name)
    return tuple((text, int(number or "0")) for text, number in zip(parts[0::2], [*parts[1::2], ""], strict=True))


def _refold(before: str, values: Sequence[str]) -> str:
    """An expression for these values in the style of `before`: folded, or a plain list."""
    return ",".join(values) if "," in before and "[" not in before else fold_in_order(values)


def _check(text: str, wanted: Iterable[Node]) -> None:
    """Refuse an edit whose result is not the intended one."""
    after = parse_spec(text.removeprefix("\ufeff").replace("\r\n", "\n"), WHERE)
    if _as_mapping(after.nodes) != _as_mapping(wanted):
        raise DeepOpsError(
            "this edit can't preserve the formatting of cluster.yml: nothing was changed",
            "make the edit manually, then run the command again",
        )


def _as_mapping(nodes: Iterable[Node]) -> Mapping[str, Node]:
    return {node.name: replace(node, slurm=dict(node.slurm)) for node in nodes}

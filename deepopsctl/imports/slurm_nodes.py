"""NodeName, NodeSet and PartitionName lines of a slurm.conf, with their DEFAULT lines applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import MappingProxyType

from deepopsctl.cluster.builder import Draft, NodeEntry, PartitionEntry
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.imports.detect import is_ip_address
from deepopsctl.imports.slurm_gres import read_gpus
from deepopsctl.imports.slurm_lines import Line, Pair
from deepopsctl.model.cluster import Gpus, Partition, Role
from deepopsctl.policy.builder import BUILT_IN_QOS
from deepopsctl.slurm.releases import NODE_KEYS, PARTITION_KEYS
from deepopsctl.text import values
from deepopsctl.text.node_sets import expand, fold_in_order, pair, shorten
from deepopsctl.text.problems import RefusedError

# Detected on the node itself, and compared with cluster.yml by `deepopsctl takeover`.
_HARDWARE = frozenset({
    "cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadsperCore".lower(),
})  # fmt: skip
_NODE_READ = frozenset({"nodename", "nodeaddr", "gres", "feature", "features"})
_PARTITION_READ = frozenset({"partitionname", "nodes", "default", "maxtime"})
_QOS = ("qos", "allowqos", "denyqos")
_ABSENT = ("FUTURE", "CLOUD")
# Two spellings of one key: the line's own overrides that of a DEFAULT line.
_SPELLINGS = MappingProxyType({"feature": "Features", "procs": "CPUs", "shared": "OverSubscribe"})


@dataclass(slots=True)
class Nodes:
    """All compute nodes of the file: their entries, in order, by name in lower case."""

    carryover: Carryover
    entries: dict[str, NodeEntry] = field(default_factory=dict)
    again: list[NodeEntry] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    defaults: dict[str, Pair] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    # how many cores the file gives a node, and where
    cores: dict[str, tuple[int, str]] = field(default_factory=dict)
    short: dict[str, str] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """One NodeName line; RefusedError where it can't be read."""
        expression = line.get("nodename")
        if expression.upper() == "DEFAULT":
            self.defaults |= _spelt(line, "nodename")
            return
        line = Line(line.where, (line.pairs[0], *{**self.defaults, **_spelt(line, "nodename")}.values()))
        state = line.get("state").upper()
        if state.startswith(_ABSENT):
            self.absent |= {name.lower() for name in expand(expression)}
            self.carryover.leave(
                f"NodeName={shorten(expression)}", line.where, f"State={state}: the node does not exist yet",
                "add it to cluster.yml when it is",
            )  # fmt: skip
            return
        addresses = line.get("nodeaddr") or self._hostname(line, expression)
        shared = self._shared(line, expression)
        pairs = pair(expression, addresses) if addresses else [(name, "") for name in expand(expression)]
        if any("." in name and not is_ip_address(name) for name, _ in pairs):
            self.carryover.check(
                "NodeName", line.where, f"{shorten(expression)}: in Slurm, deepopsctl's nodes have their short names",
                "notify users who use full names; the full names are the addresses where there is no NodeAddr",
            )  # fmt: skip
        for full, written in pairs:
            name, address = short_name(full, written)
            self.short[full.lower()] = name.lower()
            # an address equal to the name is redundant
            own = "" if address.lower() == name.lower() else address
            entry = replace(shared, names=name, addresses=own)
            if name.lower() in self.entries:
                self.again.append(entry)
            self.entries.setdefault(name.lower(), entry)
            self.cores.setdefault(name.lower(), (_core_count(line), line.where))

    def _hostname(self, line: Line, expression: str) -> str:
        hostname = line.get("nodehostname")
        if hostname and hostname != expression:
            self.carryover.check(
                "NodeHostname", line.where, f"{shorten(hostname)} becomes the address of {shorten(expression)}",
                "deploy renames the nodes to their NodeName; slurm_set_hostname: false keeps their names",
            )  # fmt: skip
            return hostname
        return ""

    def _shared(self, line: Line, expression: str) -> NodeEntry:
        """The common attributes of a line's nodes."""
        gpus: Gpus | None = None
        if line.get("gres"):
            gpus = read_gpus(line.get("gres"), line.where, shorten(expression), self.carryover)
        features = []
        for word in line.get("features").split(","):
            try:
                features += [values.check_feature(word)] if word else []
            except RefusedError as refusal:
                self.carryover.leave(f"Feature={shorten(word)}", line.where, refusal.message, refusal.hint)
        return NodeEntry(
            where=line.where, names="", roles=frozenset({Role.COMPUTE}), gpus=gpus,
            features=tuple(dict.fromkeys(features)), slurm=self._options(line, expression),
        )  # fmt: skip

    def _options(self, line: Line, expression: str) -> Mapping[str, str]:
        options: dict[str, str] = {}
        for item in line.pairs:
            if item.name in _HARDWARE:
                self.hardware.setdefault(item.key, line.where)
            elif item.name == "port":
                self.carryover.leave("Port", line.where, f"{shorten(expression)}: slurmd listens on SlurmdPort")
            elif item.name == "state" and item.value.upper() not in ("UNKNOWN", "IDLE"):
                self.carryover.leave(
                    f"State={item.value}", line.where, f"{shorten(expression)}: states are not configuration",
                    "drain the node when it is deployed",
                )  # fmt: skip
            elif item.name == "reason":
                self.carryover.leave("Reason", line.where, f"{shorten(expression)}: it belongs to a state")
            elif item.name not in _NODE_READ | {"state", "nodehostname"}:
                options |= carried_option(item, line.where, values.OWNED_NODE_KEYS, self.carryover)
        return options

    def names(self, expression: str, sets: Mapping[str, tuple[str, ...]]) -> list[str]:
        """The nodes of a partition's Nodes=: names, node sets and ALL, without absent nodes."""
        nodes: list[str] = []
        for name in expand(expression):
            if name.upper() == "ALL":
                nodes += [entry.names for entry in self.entries.values()]
            elif name.lower() in sets:
                nodes += sets[name.lower()]
            elif self.short.get(name.lower(), name.lower()) in self.entries:
                nodes.append(self.entries[self.short.get(name.lower(), name.lower())].names)
            elif name.lower() not in self.absent:
                nodes.append(name)
        return list(dict.fromkeys(nodes))

    def with_feature(self, feature: str) -> tuple[str, ...]:
        """The nodes that have a feature."""
        return tuple(entry.names for entry in self.entries.values() if feature in entry.features)


@dataclass(slots=True)
class Partitions:
    """PartitionName and NodeSet lines, read after the nodes."""

    nodes: Nodes
    draft: Draft
    sets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: dict[str, Pair] = field(default_factory=dict)

    def add_set(self, line: Line) -> None:
        """One NodeSet line."""
        listed = self.nodes.names(line.get("nodes"), self.sets) if line.get("nodes") else []
        by_feature = self.nodes.with_feature(line.get("feature")) if line.get("feature") else ()
        self.sets[line.get("nodeset").lower()] = tuple(dict.fromkeys([*listed, *by_feature]))

    def add(self, line: Line) -> None:
        """One PartitionName line; RefusedError where it can't be read."""
        name = line.get("partitionname")
        if name.upper() == "DEFAULT":
            self.defaults |= _spelt(line, "partitionname")
            return
        line = Line(line.where, (line.pairs[0], *{**self.defaults, **_spelt(line, "partitionname")}.values()))
        names = self.nodes.names(line.get("nodes"), self.sets) if line.get("nodes") else []
        if not names:
            self.draft.carryover.leave(f"PartitionName={name}", line.where, "none of its nodes exists")
            return
        options: dict[str, str] = {}
        for item in line.pairs:
            if item.name in _QOS and not _always_there(item):
                reason = f"partition {name}: slurmctld does not start before {shorten(item.value)} is in the database"
                hint = "make it by `policy:` in cluster.yml, then name it in the partition's options"
                self.draft.carryover.leave(item.key, line.where, reason, hint)
                continue
            if item.name not in _PARTITION_READ and (item.name, item.value.upper()) != ("state", "UP"):
                options |= carried_option(item, line.where, values.OWNED_PARTITION_KEYS, self.draft.carryover)
        limit = line.get("maxtime")
        partition = Partition(
            name=values.check_partition_name(name),
            nodes=(),
            default=line.get("default").upper() == "YES",
            max_time=values.check_max_time("UNLIMITED" if limit == "-1" else limit),
            options=options,
        )
        if partition.default:
            self._only_default(line.where, name)
        nodes = "all" if line.get("nodes").upper() == "ALL" else fold_in_order(names)
        self.draft.partitions.append(PartitionEntry(line.where, f"partition {name}", partition, nodes))

    def _only_default(self, where: str, name: str) -> None:
        """Of several default partitions Slurm uses the last."""
        for index, entry in enumerate(self.draft.partitions):
            if entry.partition.default:
                reason = f"{entry.partition.name} is one, too: as in Slurm, {name}, which comes last, is the default"
                self.draft.carryover.check("Default", where, reason)
                self.draft.partitions[index] = replace(entry, partition=replace(entry.partition, default=False))


def short_name(name: str, address: str) -> tuple[str, str]:
    """A host for cluster.yml: the short name, and the full name as its address if there is no other."""
    if is_ip_address(name) or "." not in name:
        return name, address
    return name.partition(".")[0], address or name


def _core_count(line: Line) -> int:
    """The cores of a line's nodes; 0 where it does not say how many a socket has."""
    sockets = _count(line, "sockets") or _count(line, "boards", 1) * _count(line, "socketsperboard", 1)
    return sockets * _count(line, "corespersocket")


def _count(line: Line, name: str, without: int = 0) -> int:
    text = line.get(name)
    return int(text) if text.isdigit() and len(text) < 6 else without


def _always_there(item: Pair) -> bool:
    """Whether a partition's list has only QOS that every new database contains."""
    return set(item.value.split(",")) <= ({BUILT_IN_QOS} if item.name == "qos" else {BUILT_IN_QOS, "ALL"})


def _spelt(line: Line, line_key: str) -> dict[str, Pair]:
    """The attributes of a line by name, in one spelling each."""
    pairs: dict[str, Pair] = {}
    for item in line.pairs:
        if line_key == "partitionname" and item.name == "priority":
            # sets both; Slurm prefers the newer keys, wherever they are on the line
            for key in ("PriorityJobFactor", "PriorityTier"):
                pairs.setdefault(key.lower(), Pair(key, item.value))
        elif item.name != line_key:
            one = Pair(_SPELLINGS.get(item.name, item.key), item.value)
            pairs[one.name] = one
    return pairs


def carried_option(item: Pair, where: str, owned: Mapping[str, str], carryover: Carryover) -> dict[str, str]:
    """An additional key of a node or partition; if refused, nothing and a note."""
    known = NODE_KEYS if owned is values.OWNED_NODE_KEYS else PARTITION_KEYS
    if item.name not in known:
        carryover.leave(item.key, where, "not every Slurm from 22.05 to 26.05 knows it", "add it if your Slurm does")
        return {}
    try:
        return dict(values.check_slurm_options({item.key: item.value}, owned))
    except RefusedError as refusal:
        carryover.leave(item.key, where, refusal.message, refusal.hint)
        return {}


def batches(entries: Iterable[NodeEntry]) -> list[NodeEntry]:
    """Merge identical nodes of one line into one entry, so that a problem is reported once."""
    merged: list[NodeEntry] = []
    for (shared, _), group in groupby(entries, key=_common_part):
        same = list(group)
        addresses = ",".join(entry.addresses for entry in same if entry.addresses)
        merged.append(replace(shared, names=",".join(entry.names for entry in same), addresses=addresses))
    return merged


def _common_part(entry: NodeEntry) -> tuple[NodeEntry, bool]:
    return replace(entry, names="", addresses=""), bool(entry.addresses)

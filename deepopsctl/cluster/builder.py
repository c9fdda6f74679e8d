"""Cluster builder: collects the entries of node lists, checks them together, returns a frozen Cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from deepopsctl.cluster import shared_state
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.gpus.gres import gres_counts
from deepopsctl.gpus.nvlink import NvlinkDraft
from deepopsctl.gpus.reference_units import units_of
from deepopsctl.model.cluster import Access, Cluster, Gpus, JobDirectories, Maintenance, Node, Partition, Role
from deepopsctl.model.spaces import Space
from deepopsctl.model.storage import Mount
from deepopsctl.policy.builder import Place, PolicyDraft
from deepopsctl.storage.builder import ClusterNodes, StorageDraft
from deepopsctl.text.node_sets import expand, fold_in_order, pair, shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.values import address_key, check_address, check_cluster_name, check_name

# More than the largest Slurm clusters have: protects memory from a mistyped range.
MAX_NODES = 20_000
DEFAULT_NAME = "cluster"


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


@dataclass(slots=True)
class DraftNode:
    """One node while node lists are read; several entries may define it."""

    name: str
    where: str
    roles: frozenset[Role]
    address: str
    port: int
    gpus: Gpus | None
    features: tuple[str, ...]
    slurm: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MaintenanceEntry:
    """One maintenance as written; `nodes` is an expression or `all`."""

    where: str
    within: str
    maintenance: Maintenance
    nodes: str


class Draft:
    """Nodes and partitions in input order, with the problems in them."""

    def __init__(self, source: str, problems: Problems) -> None:
        self.source = source
        self.problems = problems
        self.nodes: dict[str, DraftNode] = {}
        self.partitions: list[PartitionEntry] = []
        self.maintenance: list[MaintenanceEntry] = []
        self.name = ""
        # an invalid name in the source: a problem unless --name gives another
        self.refused_name: tuple[str, RefusedError] | None = None
        self.protected = False
        self.access = Access(user="")
        self.policy = PolicyDraft()
        self.storage = StorageDraft()
        self.spaces: tuple[Space, ...] = ()
        self.job_directories: JobDirectories | None = None
        # where cluster.yml has it, and the name of an entry of storage
        self.slurm_state = ("", "")
        self.nvlink = NvlinkDraft()
        self.components: tuple[str, ...] | None = None
        self.carryover = Carryover()
        # set if an entry can't be read: its content is then not reported as missing
        self.incomplete = False
        # groups of an inventory with their number of hosts, if no group defines a role
        self.unknown_groups: Mapping[str, int] = {}
        self._counted = 0

    def refuse(self, where: str, refusal: RefusedError) -> None:
        """Refuse a whole entry; its nodes are then not reported as missing."""
        self.incomplete = True
        self.problems.refuse(where, "", refusal)

    def take_name(self, text: str, where: str) -> None:
        """The cluster's name of a Slurm configuration: Slurm itself converts it to lower case."""
        try:
            self.name = check_cluster_name(text.lower())
        except RefusedError as refusal:
            self.refused_name = where, RefusedError(refusal.message, f"give another by --name: {refusal.hint}")

    def add(self, entry: NodeEntry) -> None:
        """Add new nodes; a duplicate is a problem."""
        again: dict[str, list[str]] = {}
        for name, address in self._nodes_of(entry):
            known = self.nodes.get(name.lower())
            if known:
                again.setdefault(known.where, []).append(name)
            else:
                self.nodes[name.lower()] = _draft_node(name, address, entry)
        for where, names in again.items():
            refusal = RefusedError(
                f"{_some(names)} already given {_at(where, entry.where)}",
                "list every node once; several roles of one node go into one entry",
            )
            self.problems.refuse(entry.where, entry.label("names"), refusal)

    def merge(self, entry: NodeEntry) -> None:
        """Add nodes, or merge with known ones; conflicting values are a problem."""
        twice, differ = [], []
        for name, address in self._nodes_of(entry):
            known = self.nodes.get(name.lower())
            if known is None:
                self.nodes[name.lower()] = _draft_node(name, address, entry)
                continue
            if entry.roles <= known.roles and known.where == entry.where:
                twice.append(RefusedError(f"{name} is given twice", "name every node once for each role"))
            if address and known.address and address_key(address) != address_key(known.address):
                what = f"{name} has the address {address} here, but {known.address} {_at(known.where, entry.where)}"
                differ.append(RefusedError(what, "give one address for each node"))
            known.address = known.address or address
            known.roles |= entry.roles
        self.problems.refuse_similar(entry.where, "", twice)
        self.problems.refuse_similar(entry.where, "", differ)

    def _nodes_of(self, entry: NodeEntry) -> list[tuple[str, str]]:
        """Names with addresses ('' for none) of an entry; empty if it is invalid."""
        pairs = self._read(entry)
        self.incomplete = self.incomplete or not pairs
        return pairs

    def _read(self, entry: NodeEntry) -> list[tuple[str, str]]:
        if self._counted > MAX_NODES:
            return []
        try:
            pairs = _pairs(entry)
        except RefusedError as refusal:
            self.problems.refuse(entry.where, entry.label("names"), refusal)
            return []
        self._counted += len(pairs)
        if self._counted > MAX_NODES:
            self.problems.add(entry.where, f"more than {MAX_NODES:,} nodes in total", "check the ends of the ranges")
            return []
        good = self._check_all(entry, "names", (name for name, _ in pairs), check_name)
        good = self._check_all(entry, "addresses", (a for _, a in pairs if a), check_address) and good
        return pairs if good else []

    def _check_all(self, entry: NodeEntry, part: str, values: Iterable[str], check: Callable[[str], str]) -> bool:
        """Check many values of one entry; returns whether all are valid."""
        refusals = []
        for value in values:
            try:
                check(value)
            except RefusedError as refusal:
                refusals.append(refusal)
        self.problems.refuse_similar(entry.where, entry.label(part), refusals)
        return not refusals

    def finish(self) -> Cluster:
        """The frozen cluster, or an InputError with all problems."""
        if self.refused_name and not self.name:
            self.problems.refuse(self.refused_name[0], "", self.refused_name[1])
        self._check_addresses()
        self._check_roles()
        partitions = self._finish_partitions()
        known = self.nodes.values()
        written = ((Place(entry.where, entry.within), entry.partition) for entry in self.partitions)
        types = frozenset(gpu_type for node in known if node.gpus for gpu_type in gres_counts(node.gpus))
        maintenance = self._finish_maintenance()
        policy = self.policy.finish(written, types, self.problems)
        self._check_billing(types)
        storage = self.storage.finish(self._for_storage(), self.problems)
        self._check_slurm_state(storage)
        domains = self.nvlink.finish({m.name: m.gpus for m in known}, self.problems, self.incomplete)
        self.problems.raise_if_any()
        nodes = tuple(Node(m.name, m.roles, m.address, m.port, m.gpus, m.features, m.slurm) for m in known)
        return Cluster(
            name=self.name or DEFAULT_NAME,
            access=self.access,
            nodes=nodes,
            partitions=partitions or default_partitions(nodes),
            policy=policy,
            maintenance=maintenance,
            protected=self.protected,
            storage=storage,
            manages_storage=self.storage.declared or bool(storage),
            spaces=self.spaces,
            job_directories=self.job_directories,
            slurm_state=self.slurm_state[1],
            nvlink_domains=domains,
            components=self.components,
        )

    def controllers(self) -> list[str]:
        """The names of the controllers so far."""
        return [node.name for node in self.nodes.values() if Role.CONTROLLER in node.roles]

    def mounts(self) -> tuple[Mount, ...]:
        """The mounts so far, whatever is wrong with them."""
        return self.storage.finish(self._for_storage(), Problems())

    def _for_storage(self) -> ClusterNodes:
        nodes = self.nodes.values()
        with_role = {role: [m.name for m in nodes if role in m.roles] for role in Role}
        servers = with_role[Role.NFS_SERVER] or with_role[Role.CONTROLLER][:1]
        return ClusterNodes(
            addresses={node.name: node.address for node in nodes},
            roles={node.name: frozenset(role.value for role in node.roles) for node in nodes},
            servers=frozenset(servers),
            incomplete=self.incomplete,
        )

    def _check_slurm_state(self, storage: Iterable[Mount]) -> None:
        where, name = self.slurm_state
        for refusal in shared_state.refusals(name, storage, self.controllers()) if name else ():
            self.problems.refuse(where, shared_state.KEY, refusal)

    def _check_billing(self, gpu_types: frozenset[str]) -> None:
        """Billing in reference units needs a value for every GPU type."""
        if self.policy.billing is None:
            return
        place, billing = self.policy.billing
        for gpu_type in sorted(gpu_types):
            try:
                units_of(gpu_type, billing.gpus)
            except RefusedError as refusal:
                self.problems.refuse(place.where, f"{place.within}.gpus", refusal)

    def _check_addresses(self) -> None:
        seen: dict[str, DraftNode] = {}
        refusals: dict[str, list[RefusedError]] = {}
        for node in self.nodes.values():
            # a node without an address is reached by name
            address = address_key(node.address or node.name)
            # an address may be another node's name
            first = self.nodes.get(address) or seen.setdefault(address, node)
            if first is not node:
                shared = f"{node.name} has the address {node.address or node.name} of {first.name}"
                refusal = RefusedError(
                    f"{shared} {_at(first.where, node.where)}", "every node needs an address of its own"
                )
                refusals.setdefault(node.where, []).append(refusal)
        for where, conflicts in refusals.items():
            self.problems.refuse_similar(where, "", conflicts)

    def _check_roles(self) -> None:
        roles = frozenset(role for node in self.nodes.values() for role in node.roles)
        for role, option in ((Role.CONTROLLER, "--controller"), (Role.COMPUTE, "--compute")):
            if role not in roles and not self.incomplete:
                self.problems.add(
                    self.source,
                    f"no node has the role {role.value}",
                    f"give a node the role {role.value}, or name one with {option}",
                )
        misplaced: dict[str, list[str]] = {}
        for node in self.nodes.values():
            if Role.COMPUTE not in node.roles and (node.gpus or node.features or node.slurm):
                misplaced.setdefault(node.where, []).append(node.name)
        for where, names in misplaced.items():
            what = f"{shorten(fold_in_order(names))} with gpus, features or slurm keys, but without the role compute"
            self.problems.add(where, what, "add the role compute or remove them")

    def _finish_partitions(self) -> tuple[Partition, ...]:
        compute = {m.name: None for m in self.nodes.values() if Role.COMPUTE in m.roles}
        done: dict[str, Partition] = {}
        default = ""
        for entry in self.partitions:
            partition = entry.partition
            if partition.name in done:
                what = f"{entry.within}.name: {partition.name} is already the name of a partition"
                self.problems.add(entry.where, what, "give each partition a name of its own")
            if partition.default and default:
                what = f"{entry.within}.default: {default} is already the default partition"
                self.problems.add(entry.where, what, "set default: true for one partition only")
            default = default or (partition.name if partition.default else "")
            names = self._partition_nodes(entry, compute)
            everything = entry.nodes.strip().lower() == "all"
            done[partition.name] = replace(partition, nodes=names, everything=everything)
        return tuple(done.values())

    def _finish_maintenance(self) -> tuple[Maintenance, ...]:
        compute = {m.name: None for m in self.nodes.values() if Role.COMPUTE in m.roles}
        done: dict[str, Maintenance] = {}
        for entry in self.maintenance:
            name = entry.maintenance.name
            if name in done:
                what = f"{entry.within}.name: {name} is already the name of another"
                self.problems.add(entry.where, what, "give each a name of its own")
            everything = entry.nodes.strip().lower() == "all"
            nodes = self._partition_nodes(entry, compute)
            done[name] = replace(entry.maintenance, nodes=nodes, everything=everything)
        return tuple(done.values())

    def _partition_nodes(
        self, entry: PartitionEntry | MaintenanceEntry, compute: Mapping[str, None]
    ) -> tuple[str, ...]:
        if entry.nodes.strip().lower() == "all":
            return tuple(compute)
        try:
            names = expand(entry.nodes)
        except RefusedError as refusal:
            self.problems.refuse(entry.where, f"{entry.within}.nodes", refusal)
            return ()
        label = f"{entry.within}.nodes: {shorten(entry.nodes)}"
        known = frozenset(node.name for node in self.nodes.values())
        unknown = [name for name in names if name not in known]
        other = [name for name in names if name not in compute and name in known]
        if len(set(names)) != len(names):
            self.problems.add(entry.where, f"{label} names a node twice", "list every node once")
        if unknown and not self.incomplete:
            self.problems.add(
                entry.where,
                f"{label} has no node {shorten(fold_in_order(unknown))}",
                "add it under nodes: or shorten the range",
            )
        if other:
            self.problems.add(
                entry.where,
                f"{label}: {_some(other)} not a compute node",
                "add the role compute or leave it out",
            )
        return names


def default_partitions(nodes: Iterable[Node]) -> tuple[Partition, ...]:
    """GPU nodes in `gpu` (the default, if there are any), the others in `cpu`."""
    compute = [node for node in nodes if Role.COMPUTE in node.roles]
    with_gpus = tuple(node.name for node in compute if node.gpus)
    without = tuple(node.name for node in compute if not node.gpus)
    partitions = [Partition("gpu", with_gpus, default=True)] if with_gpus else []
    return (*partitions, Partition("cpu", without, default=not with_gpus)) if without else tuple(partitions)


def _pairs(entry: NodeEntry) -> list[tuple[str, str]]:
    if entry.addresses:
        return list(pair(entry.names, entry.addresses))
    return [(name, "") for name in expand(entry.names)]


def _draft_node(name: str, address: str, entry: NodeEntry) -> DraftNode:
    return DraftNode(name, entry.where, entry.roles, address, entry.port, entry.gpus, entry.features, entry.slurm)


def _some(names: list[str]) -> str:
    return shorten(fold_in_order(names)) + (" is" if len(names) == 1 else " are")


def _at(where: str, here: str) -> str:
    """The location of something, as seen from `here`."""
    # all uses of an option have the same `where`; a line of a file is one entry
    return "in the same entry" if where == here and not where.startswith("--") else f"at {where}"

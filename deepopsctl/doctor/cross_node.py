"""Checks that compare nodes: unique ids and addresses, identical versions, clocks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from ipaddress import ip_address

from deepopsctl.checks.check import Check
from deepopsctl.doctor.check_builders import Declared, failed, passed, skipped, warned
from deepopsctl.doctor.control_host import TARGET
from deepopsctl.doctor.facts import NodeFacts
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold

# as the smoke suite has them
WARN_S, FAIL_S = 1.0, 60.0
# different values that a message lists
_MOST = 4

Nodes = Sequence[NodeFacts]


def machine_ids(nodes: Nodes, _: Declared) -> Iterator[Check]:
    """Copies of one installation, and names that lead to the same host."""
    groups = _groups(nodes, lambda node: node.machine_id)
    copies = {each: _folded(node.name for node in group) for each, group in groups.items() if len(group) > 1}
    places = Counter((node.machine_id, _addresses(node)) for node in nodes)
    for node in nodes:
        names = copies.get(node.machine_id)
        if not node.machine_id:
            yield failed("machine-id", node.name, "/etc/machine-id is empty or missing")
        elif not names:
            yield passed("machine-id", node.name, "its own")
        elif node.addresses and places[node.machine_id, _addresses(node)] > 1:
            hint = "give each node its own address in cluster.yml"
            yield failed("machine-id", node.name, f"{names} are the same host", hint=hint)
        else:
            yield failed("machine-id", node.name, f"{names} have the same /etc/machine-id: they are copies")


def addresses(nodes: Nodes, _: Declared) -> Iterator[Check]:
    """The same address on two nodes."""
    owners: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for address in sorted(_addresses(node)):
            owners[address].append(node.name)
    several = {address: _folded(names) for address, names in owners.items() if len(names) > 1}
    for node in nodes:
        shared = sorted(address for address in _addresses(node) if address in several)
        if shared:
            words = ", ".join(f"{address} is on {several[address]}" for address in shared)
            yield failed("addresses", node.name, words)
        elif not node.addresses:
            yield skipped("addresses", node.name, "the node reports none")
        else:
            yield passed("addresses", node.name, "no other node's")


def names(nodes: Nodes, declared: Declared) -> Iterator[Check]:
    """Every name on every node, against cluster.yml and against the addresses that nodes really have."""
    own = {node.name: _addresses(node) for node in nodes}
    for node in nodes:
        wrong = [*_wrong(node, own), *_misnamed(node, declared)]
        fixed = {name for name in node.names.unresolved if node.names.managed or not declared.node(name).address}
        if wrong:
            yield failed("names", node.name, "; ".join(wrong))
        elif fixed:
            yield failed("names", node.name, f"does not resolve: {fold(sorted(fixed))}")
        elif node.names.silent:
            message = f"the node's resolver is too slow for {fold(sorted(node.names.silent))}"
            yield warned("names", node.name, message)
        elif node.names.unresolved:
            yield skipped("names", node.name, "not known there yet: `deploy` writes /etc/hosts")
        else:
            yield passed("names", node.name, f"{len(declared.names)} resolve")


def _wrong(node: NodeFacts, own: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for name, resolved in node.names.otherwise.items():
        # as installers write it; the deploy's own lines come before it
        itself = name == node.name and all(ip_address(address.partition("%")[0]).is_loopback for address in resolved)
        itself = itself and not node.names.managed
        # a node may have several networks: any of its own addresses will do
        if not itself and not own.get(name, frozenset()) & set(resolved):
            yield f"{name} is {', '.join(resolved)}"


def _misnamed(node: NodeFacts, declared: Declared) -> Iterator[str]:
    for address, called in node.names.called.items():
        right = declared.owners.get(address, "")
        others = sorted((set(called) & declared.names) - {right})
        if others:
            yield f"{address} is called {', '.join(others)}, not {right}"


def clocks(nodes: Nodes, _: Declared) -> Iterator[Check]:
    """Each node's clock against this machine's; if all differ in the same way, this machine's clock is wrong."""
    leads = {node.name: node.lead for node in nodes}
    if _is_us(list(leads.values())):
        least = min(_least(lead) for lead in leads.values())
        word = "behind" if all(low > 0 for low, _high in leads.values()) else "ahead of"
        message = f"this machine's clock is at least {least:.0f} s {word} those of all {len(nodes)} nodes"
        make = failed if least > FAIL_S else warned
        yield make("control-clock", TARGET, message)
        for name in leads:
            yield skipped("clock-offset", name, "the nodes agree, this machine does not")
        return
    if len(nodes) > 1:
        yield passed("control-clock", TARGET, f"agrees with {amount(len(nodes), 'node')}")
    else:
        yield skipped("control-clock", TARGET, "there are not two nodes to compare with")
    for name, lead in leads.items():
        yield _clock(name, lead)


def _is_us(leads: Sequence[tuple[float, float]]) -> bool:
    return (
        len(leads) > 1
        and all(_least(lead) > WARN_S for lead in leads)
        and max(low for low, _high in leads) <= min(high for _low, high in leads)
    )


def _clock(name: str, lead: tuple[float, float]) -> Check:
    least = _least(lead)
    # the smallest possible difference: the node reads its clock only after the connection is set up
    measured, expected = f"{max(lead[0], min(lead[1], 0.0)):+.1f}", f"within {WARN_S:g}"
    if least <= WARN_S:
        return passed("clock-offset", name, measured, expected, "s")
    message = f"the clock is at least {least:.1f} s {'ahead of' if lead[0] > 0 else 'behind'} this machine's"
    if least > FAIL_S:
        return failed("clock-offset", name, message, measured, expected, unit="s")
    return warned("clock-offset", name, message, measured, expected, "s")


def _least(lead: tuple[float, float]) -> float:
    """The smallest distance that fits what was measured."""
    return max(lead[0], -lead[1], 0.0)


def mtus(nodes: Nodes, _: Declared) -> Iterator[Check]:
    """Interfaces of the same network; the most frequent size is the right one."""
    sizes: dict[str, Counter[int]] = defaultdict(Counter)
    for node in nodes:
        for network, mtu in {(entry.network, entry.mtu) for entry in node.addresses}:
            sizes[network][mtu] += 1
    for node in nodes:
        outliers = [entry for entry in node.addresses if _is_outlier(entry.mtu, sizes[entry.network])]
        if outliers:
            words = "; ".join(
                f"{entry.interface} has {entry.mtu}, others in {entry.network} have "
                f"{_others(entry.mtu, sizes[entry.network])}"
                for entry in outliers
            )
            yield failed("mtu", node.name, words)
        elif node.addresses:
            yield passed("mtu", node.name, ", ".join(str(mtu) for mtu in sorted({e.mtu for e in node.addresses})))
        else:
            yield skipped("mtu", node.name, "the node reports none")


def _is_outlier(mtu: int, sizes: Counter[int]) -> bool:
    """Whether a size is not the most frequent one; if two are equally frequent, both are outliers."""
    most = max(sizes.values())
    return len(sizes) > 1 and (sizes[mtu] < most or list(sizes.values()).count(most) > 1)


def _others(mtu: int, sizes: Counter[int]) -> str:
    return " or ".join(str(size) for size, _count in sizes.most_common() if size != mtu)


def user_ids(nodes: Nodes, declared: Declared) -> Iterator[Check]:
    """Local accounts: one name with several ids, and one id with several names."""
    wrong = _slurm_ids(nodes, declared)
    by_name: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    by_uid: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        for name, ids in node.users.items():
            by_name[name][ids].append(node.name)
            by_uid[ids.partition(":")[0]][name].append(node.name)

    @cache
    def of_name(name: str, ids: str) -> str:
        return f"{name} is {ids} and {_elsewhere(by_name[name], ids)}" if _unusual(by_name[name], ids) else ""

    @cache
    def of_uid(uid: str, name: str) -> str:
        return f"{uid} is {name} and {_elsewhere(by_uid[uid], name)}" if _unusual(by_uid[uid], name) else ""

    for node in nodes:
        if node.name in wrong:
            yield wrong[node.name]
            continue
        users = sorted(node.users.items())
        other = [text for name, ids in users if (text := of_name(name, ids))]
        uids = ((ids.partition(":")[0], name) for name, ids in users if len(by_name[name]) == 1)
        other += [text for uid, name in uids if (text := of_uid(uid, name))]
        if other:
            words = "; ".join(other[:5]) + (f"; {len(other) - 5} more" if len(other) > 5 else "")
            yield warned("user-ids", node.name, words)
        elif len(nodes) < 2:
            yield skipped("user-ids", node.name, "there are not two nodes to compare with")
        else:
            yield passed("user-ids", node.name, f"{amount(len(node.users), 'account agrees', 'accounts agree')}")


def _slurm_ids(nodes: Nodes, declared: Declared) -> dict[str, Check]:
    """Nodes whose user slurm has another id than the cluster: jobs would start there and never run."""
    uids = {node.name: node.users["slurm"].partition(":")[0] for node in nodes if "slurm" in node.users}
    first = uids.get(declared.cluster.controllers[0].name)
    checks = {}
    for node in nodes:
        settings, has = node.settings, uids.get(node.name)
        wanted = str(settings.user_id or first or settings.package_user_ids.get(node.family) or has)
        if has not in (None, wanted):
            message = (
                f"the user slurm has the id {has} here, {wanted} in the cluster: a deploy leaves the node as it is"
            )
            hint = (
                f"on the node: `systemctl stop slurmd slurmctld; usermod --uid {wanted} slurm; groupmod --gid {wanted} "
                f"slurm; chown --recursive --from={has} slurm:slurm /var/lib/slurm /var/log/slurm`"
            )
            checks[node.name] = failed("user-ids", node.name, message, has or "", wanted, hint=hint)
    return checks


def _unusual(owners: Mapping[str, Sequence[str]], value: str) -> bool:
    """Whether another value is at least as frequent."""
    return any(len(names) >= len(owners[value]) for other, names in owners.items() if other != value)


def _elsewhere(owners: Mapping[str, Sequence[str]], value: str) -> str:
    others = sorted((other, names) for other, names in owners.items() if other != value)
    words = ", ".join(f"{other} on {_folded(set(names))}" for other, names in others[:_MOST])
    return f"{words} ..." if len(others) > _MOST else words


def kernels(nodes: Nodes, declared: Declared) -> Iterator[Check]:
    """One kernel in a partition."""
    for partition, members in _partitions(nodes, declared):
        yield _same_version("kernel", partition, {node.name: node.kernel for node in members})


def drivers(nodes: Nodes, declared: Declared) -> Iterator[Check]:
    """One driver on the GPU nodes of a partition."""
    for partition, members in _partitions(nodes, declared):
        versions = {node.name: node.gpus.driver for node in members if declared.node(node.name).gpus}
        without = sorted(name for name, version in versions.items() if not version)
        if not versions:
            continue
        if len(without) == len(versions):
            yield skipped("gpu-driver", partition, "no node has one")
        elif without:
            message = f"{fold(without)} {'has' if len(without) == 1 else 'have'} none, other nodes have one"
            yield failed("gpu-driver", partition, message, hint="install the same driver there")
        else:
            yield _same_version("gpu-driver", partition, versions)


def _same_version(name: str, partition: str, versions: Mapping[str, str]) -> Check:
    if len(set(versions.values())) == 1:
        return passed(name, partition, next(iter(versions.values())))
    owners: dict[str, list[str]] = defaultdict(list)
    for node, version in sorted(versions.items()):
        owners[version].append(node)
    ordered = sorted(owners.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    words = ", ".join(f"{version} on {fold(members)}" for version, members in ordered[:_MOST])
    return warned(name, partition, f"{len(ordered)} versions: {words}{' ...' if len(ordered) > _MOST else ''}")


def _partitions(nodes: Nodes, declared: Declared) -> Iterator[tuple[str, list[NodeFacts]]]:
    for partition in declared.cluster.partitions:
        names = frozenset(partition.nodes)
        members = [node for node in nodes if node.name in names]
        if members:
            yield partition.name, members


def _folded(names: Iterable[str]) -> str:
    return fold(sorted(names))


def _addresses(node: NodeFacts) -> frozenset[str]:
    return frozenset(entry.address for entry in node.addresses)


def _groups(nodes: Nodes, key: Callable[[NodeFacts], str]) -> dict[str, list[NodeFacts]]:
    groups: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        groups[key(node)].append(node)
    return groups


# in the order of the report
CHECKS: tuple[Callable[[Nodes, Declared], Iterable[Check]], ...] = (
    machine_ids,
    addresses,
    names,
    mtus,
    clocks,
    user_ids,
    kernels,
    drivers,
)

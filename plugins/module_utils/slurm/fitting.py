"""Whether nodes have what a job asks for, were they all idle. What can't be read of a request counts as met.

Runs on nodes, too. Python 3.8.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Tuple

from . import slurm_output as output
from .hostlist import HostlistError, expand

_GRES = re.compile(r"(?:gres[/:])?([A-Za-z]\w*)(?:[:=]([A-Za-z]\w*(?:[.\-]\w+)*))?(?:[:=]([0-9]+))?(?:\([^)]*\))?")

# {(name, type): count} of `gpu:a100:2,shard:8`; a type may be ''
Gres = Dict[Tuple[str, str], int]


class Job(NamedTuple):
    """What a waiting job asks for; `gres` of each node, `all_gres` of all nodes together. Minutes, MB."""

    id: str
    user: str
    partitions: tuple[str, ...]
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    nodes: int = 1
    cpus: int = 1
    node_cpus: int = 1
    memory: int = 0
    gres: tuple[tuple[tuple[str, str], int], ...] = ()
    all_gres: tuple[tuple[tuple[str, str], int], ...] = ()
    limit: int | None = None
    reservation: str = ""
    features: str = ""
    held: bool = False
    # the job's own number, also where it is one part of several
    number: str = ""

    @property
    def request(self) -> tuple[Any, ...]:
        """All but whose it is: equal ones are looked at once."""
        return tuple(self)[2:-2]


class Node(NamedTuple):
    """What a node offers; None where slurm.conf does not say."""

    cpus: int | None
    memory: int | None
    gres: Gres
    features: frozenset[str]


class Layout(NamedTuple):
    """The nodes and partitions of a slurm.conf; a partition has its attributes in lower case."""

    nodes: Mapping[str, Node]
    members: Mapping[str, frozenset[str]]
    partitions: Mapping[str, Mapping[str, str]]

    def without(self, names: Iterable[str]) -> Layout:
        """The same when these nodes are gone."""
        gone = frozenset(names)
        members = {partition: nodes - gone for partition, nodes in self.members.items()}
        return Layout({name: node for name, node in self.nodes.items() if name not in gone}, members, self.partitions)

    def lent(self, other: Layout, names: Iterable[str]) -> Layout:
        """The same with these nodes of another layout, in the partitions that have them there."""
        more = {name for name in names if name in other.nodes and name not in self.nodes}
        lent = {name: nodes for name, nodes in other.members.items() if nodes and nodes <= more}
        partitions = {**{name: other.partitions[name] for name in lent}, **self.partitions}
        members = {
            name: self.members.get(name, frozenset()) | (more & other.members.get(name, frozenset()))
            for name in partitions
        }
        return Layout({**self.nodes, **{name: other.nodes[name] for name in more}}, members, partitions)


def members_of(
    attributes: Mapping[str, str], nodes: Mapping[str, Node], sets: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """The nodes of a partition, with those of its node sets."""
    text = attributes.get("nodes", "").strip('"')
    if text.upper() == "ALL":
        return list(nodes)
    result: list[str] = []
    for name in expanded(text):
        if name in sets:
            feature = sets[name].get("feature", "")
            result += expanded(sets[name].get("nodes", ""))
            result += [other for other, node in nodes.items() if feature and feature in node.features]
        else:
            result.append(name)
    return [name for name in result if name in nodes]


def expanded(text: str) -> list[str]:
    """The names of a node set; the text itself where it is not one."""
    try:
        return expand(output.present(text.strip('"')))
    except HostlistError:
        return [text]


def gres(text: str) -> Gres:
    """Generic resources as nodes and jobs write them: `gpu:a100:2(S:0),shard:8`, `gres/gpu=2`."""
    counts: Gres = {}
    for word in re.split(r",(?![^(]*\))", output.present(text.strip('"'))):
        match = _GRES.fullmatch(word)
        if match:
            key = (match[1], match[2] or "")
            counts[key] = counts.get(key, 0) + int(match[3] or 1)
    return counts


def fits(job: Job, where: Layout) -> bool:
    """Whether one of the job's partitions has the nodes for it, were they all idle."""
    return any(_fits(job, where, partition) for partition in job.partitions)


def _fits(job: Job, where: Layout, partition: str) -> bool:
    attributes = where.partitions.get(partition)
    if attributes is None:
        return False
    names = where.members[partition] - frozenset(job.excluded)
    able = {name for name in names if can(job, where.nodes[name])}
    if not (frozenset(job.required) <= able and len(able) >= job.nodes):
        return False
    if not _within(job.nodes, attributes.get("maxnodes", "")) or not in_time(job, attributes):
        return False
    nodes = [where.nodes[name] for name in able]
    cpus = [node.cpus for node in nodes]
    enough = None in cpus or sum(filter(None, cpus)) >= job.cpus
    return enough and all(sum(has(node.gres, key) for node in nodes) >= count for key, count in job.all_gres)


def _within(count: int, most: str) -> bool:
    return output.whole(most) is None or count <= int(most)


def minutes(attributes: Mapping[str, str]) -> int | None:
    """A partition's longest time; None for no limit."""
    try:
        return output.minutes(attributes.get("maxtime", ""))
    except ValueError:
        return None


def in_time(job: Job, attributes: Mapping[str, str]) -> bool:
    """Whether a partition allows the job's time."""
    longest = minutes(attributes)
    return job.limit is None or longest is None or job.limit <= longest


def can(job: Job, node: Node) -> bool:
    """Whether a node has the job's share of it."""
    return (
        (node.cpus is None or node.cpus >= job.node_cpus)
        and (node.memory is None or node.memory >= job.memory)
        and all(has(node.gres, key) >= count for key, count in job.gres)
        and has_features(job.features, node.features)
    )


def has(there: Gres, key: tuple[str, str]) -> int:
    """How many a node has; any type does where none is asked for."""
    name, wanted = key
    return sum(count for (other, kind), count in there.items() if other == name and wanted in ("", kind))


def has_features(expression: str, features: frozenset[str]) -> bool:
    """Whether a node has the features of `a&(b|c)`. In brackets (`[a*2&b]`) they are of several nodes: one will do."""
    text = re.sub(r"\*[0-9]+", "", expression.replace("[", "(").replace("]", ")"))
    if "[" in expression:
        text = text.replace("&", "|")
    tokens = re.findall(r"[&|,()]|[^&|,()\s]+", text)
    value, rest = _alternatives(tokens, features)
    return True if rest else value


def _alternatives(tokens: list[str], features: frozenset[str]) -> tuple[bool, list[str]]:
    value, rest = _conjunction(tokens, features)
    while rest and rest[0] == "|":
        other, rest = _conjunction(rest[1:], features)
        value = value or other
    return value, rest


def _conjunction(tokens: list[str], features: frozenset[str]) -> tuple[bool, list[str]]:
    value, rest = _term(tokens, features)
    while rest and rest[0] in "&,":
        other, rest = _term(rest[1:], features)
        value = value and other
    return value, rest


def _term(tokens: list[str], features: frozenset[str]) -> tuple[bool, list[str]]:
    if tokens and tokens[0] == "(":
        value, rest = _alternatives(tokens[1:], features)
        return value, rest[1:]
    return (tokens[0] in features, tokens[1:]) if tokens else (True, [])


def live(nodes: str, partitions: str) -> Layout:
    """What slurmctld has, from `scontrol --oneliner show node` and `show partition`: also of what others wrote."""
    there = {
        name: Node(
            output.whole(entry.get("CPUTot", "")),
            output.whole(entry.get("RealMemory", "")),
            gres(entry.get("Gres", "")),
            frozenset(output.present(entry.get("AvailableFeatures")).split(",")) - {""},
        )
        for name, entry in output.records(nodes, "NodeName").items()
    }
    lines = output.records(partitions, "PartitionName")
    attributes = {name: {key.lower(): value for key, value in entry.items()} for name, entry in lines.items()}
    members = {name: frozenset(members_of(entry, there, {})) for name, entry in attributes.items()}
    return Layout(there, members, attributes)

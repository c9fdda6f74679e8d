"""Nodes of which a plan has to look at one only: those without a deploy that are declared, and are, the same.

Ansible's check mode of a whole deploy costs seconds of CPU for each node. Nodes that nothing was deployed on are asked
directly first (node_programs/operations/node_class): what decides their plan, as hashes, and what would stop a deploy
there. Of those with equal answers Ansible checks one. In the end each of the others is asked what the gate of a deploy
asks, with the arguments that Ansible worked out for the one.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.run import questions
from deepopsctl.run.desired_state import MEMORY
from deepopsctl.run.events import Change
from deepopsctl.run.outcome import Problem, SameNodes
from deepopsctl.run.questions import NODE_CLASS, Question
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.hardware import load_hardware
from deepopsctl.text.answers import RequiredFields, text as text_of
from deepopsctl.text.node_sets import expand
from deepopsctl.text.problems import RefusedError

T = TypeVar("T")

# the others are few, and have something of their own
_ROLES = frozenset({Role.COMPUTE, Role.LOGIN})
_TOKEN = re.compile(r"[\w.:\[\],-]+")
# what a site's own variables may depend on, which only Ansible can work out
_ADDED = re.compile(r"^\+(?:URIs:|deb) .*?(https?://[^\s\]]+)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_BY_NODE = re.compile(r"inventory_hostname|ansible_host|hostvars|ansible_facts|lookup|query\(")
# a clock that differs by more is worth a warning, in seconds; munge refuses at 300
_CLOCK_S = 60


@dataclass(frozen=True, slots=True)
class _Facts:
    """The first answer of a node."""

    areas: Mapping[str, str]
    hostname: str
    meminfo: str
    sources: int
    unreachable: Mapping[str, str]
    room: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Verified:
    """The second one."""

    refusals: tuple[Mapping[str, object], ...]
    unmet: tuple[Mapping[str, object], ...]
    unreachable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Classes:
    """What the first answers say: nodes that another one is checked for, and what is known of all by then.

    `like` is the checked node by node; `memory` and `hostnames` are those nodes' own. `others` are sentences about
    nodes that declare what another one does, and do not report the same.
    """

    like: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    hostnames: Mapping[str, str] = field(default_factory=dict)
    blocked: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    silent: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def variable(self) -> dict[str, dict[str, str]]:
        """What the playbooks take for what these nodes would have answered."""
        return {name: {"node": like, "meminfo": self.memory[name]} for name, like in self.like.items()}

    def result(self, more: Iterable[Problem] = ()) -> SameNodes:
        """What a plan reports of them."""
        return SameNodes(self.like, self.hostnames, (*self.blocked, *more))


def candidates(request: RunRequest, cluster: Cluster) -> dict[str, tuple[object, ...]]:
    """What is declared of nodes that may have nothing of deepopsctl's, by node; {} where no two have the same."""
    directory = request.directory
    known = load_hardware(directory.hardware)
    # after a deploy it is known of compute nodes alone that they had none
    roles = frozenset({Role.COMPUTE}) if (directory.runs / MEMORY).exists() else _ROLES
    nodes = [node for node in questions.reachable_nodes(request, cluster) if node.roles <= roles]
    nodes = [node for node in nodes if node.name not in known]
    declared = _declared(request, cluster, nodes) if len(nodes) > 1 else {}
    return declared if len(set(declared.values())) < len(declared) else {}


def _declared(request: RunRequest, cluster: Cluster, nodes: Sequence[Node]) -> dict[str, tuple[object, ...]]:
    """Roles, kind of address, and the places in the inventory and the site's own variables that name the node."""
    directory = request.directory
    texts = [json.dumps(_without_addresses(build_inventory(cluster)))]
    own = (path for path in directory.inventory_dir.rglob("*") if path.is_file() and path != directory.hosts)
    mine = [f"{path.name}\n{path.read_text(encoding='utf-8', errors='replace')}" for path in sorted(own)]
    mine += [
        values.read_text(encoding="utf-8") if isinstance(values, Path) else json.dumps(dict(values))
        for values in request.user_vars
    ]
    mine = [_COMMENT.sub("", text) for text in mine if "$ANSIBLE_VAULT" not in text]
    if any(_BY_NODE.search(text) for text in mine):
        return {}
    owners = {node.name: node.name for node in nodes} | {node.address: node.name for node in nodes if node.address}
    named = defaultdict[str, set[tuple[int, int]]](set)
    for number, text in enumerate([*texts, *mine]):
        for place, token in enumerate(_TOKEN.findall(text)):
            for name in {owners[word] for word in _words(token, owners) if word in owners}:
                named[name].add((number, place))
    return {
        node.name: (node.roles, bool(node.address), ":" in node.address, node.port, frozenset(named[node.name]))
        for node in nodes
    }


def _without_addresses(document: object) -> object:
    """The inventory without what every node has of its own."""
    if not isinstance(document, Mapping):
        return document
    kept: dict[str, object] = {
        key: _without_addresses(value) for key, value in document.items() if key != "deepops_addresses"
    }
    # a group's members and the variables of hosts are keys: which group it is in counts, its place there does not
    if isinstance(hosts := kept.get("hosts"), Mapping):
        kept["hosts"] = ",".join(map(str, hosts))
    return kept


def _words(token: str, owners: Mapping[str, str]) -> set[str]:
    """What a token may name: a node set, a name with a port or a domain, an address."""
    words = {token, *re.split(r"[:,\[\]]", token)}
    if "[" in token and not words & owners.keys():
        with suppress(RefusedError):
            words.update(expand(token.strip(".,:")))
    return words | {word.partition(".")[0] for word in words}


def ask(
    request: RunRequest, cluster: Cluster, declared: Mapping[str, tuple[object, ...]], content: Path,
    stopped: Callable[[], bool],
) -> Classes:  # fmt: skip
    """Ask the candidates, and form classes."""
    asked = {name: (Question(NODE_CLASS, {"name": name}),) for name in declared}
    return form(declared, questions.ask(request, cluster, asked, content, stopped))


def form(declared: Mapping[str, tuple[object, ...]], replies: questions.Replies) -> Classes:
    """The classes of nodes that declare and report the same."""
    answered = dict(_parsed(replies.answers, _Facts))
    # in the order of cluster.yml, not in that of the answers
    facts = {name: answered[name] for name in declared if name in answered}
    groups = defaultdict[object, list[str]](list)
    for name, fact in facts.items():
        if fact.areas:
            groups[declared[name], tuple(sorted(fact.areas.items()))].append(name)
    blocked = {name: [*_stops(fact)] for name, fact in facts.items()}
    like: dict[str, str] = {}
    for names in groups.values():
        # Ansible checks one that a deploy would work on
        first = next((name for name in names if not blocked[name]), names[0])
        like |= {name: first for name in names if name != first}
    warnings = {name: [*_late(replies.answers[name][0]), *_partly(fact)] for name, fact in facts.items()}
    return Classes(
        like=like,
        memory={name: facts[name].meminfo for name in like},
        hostnames={name: facts[name].hostname for name in like},
        blocked=_folded(blocked),
        warnings=_folded(warnings),
        silent=replies.silent,
        others=tuple(_others(declared, facts)),
    )


def _others(declared: Mapping[str, tuple[object, ...]], facts: Mapping[str, _Facts]) -> Iterator[str]:
    """In what areas nodes differ from the first that declares the same."""
    first: dict[tuple[object, ...], str] = {}
    for name in (name for name in declared if name in facts and facts[name].areas):
        other = first.setdefault(declared[name], name)
        mine, its = facts[name].areas, facts[other].areas
        if areas := [area for area in mine if mine[area] != its.get(area)]:
            yield f"{name} is not the same as {other}: {', '.join(areas)}"


def verify(
    request: RunRequest, cluster: Cluster, classes: Classes, gates: Mapping[str, Mapping[str, Any]],
    urls: Mapping[str, Iterable[str]], content: Path, stopped: Callable[[], bool],
) -> tuple[tuple[Problem, ...], tuple[Problem, ...], questions.Replies]:  # fmt: skip
    """Ask each node that another was checked for what a deploy would refuse there: blocks, warnings, and the replies.

    `gates` are the arguments of the checked nodes' gate, `urls` the package sources that they would get.
    """
    addresses = {node.name: node.address for node in cluster.nodes}
    asked = {
        name: (Question(NODE_CLASS, _as_of(gates.get(like, {}), name, addresses[name], urls.get(like, ()))),)
        for name, like in classes.like.items()
    }
    replies = questions.ask(request, cluster, asked, content, stopped)
    return (*refused(replies.answers), replies)


def refused(answers: questions.Answers) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """What of these answers blocks a deploy, and what is left out of it."""
    facts = dict(_parsed(answers, _Verified))
    blocked = {
        name: [(text_of(each.get("message")), text_of(each.get("hint"))) for each in (*fact.refusals, *fact.unmet)]
        for name, fact in facts.items()
    }
    away = {
        name: [(f"no way to {url} ({why}): what comes from it will be left out", "") for url, why in parts]
        for name, fact in facts.items()
        if (parts := fact.unreachable.items())
    }
    return _folded(blocked), _folded(away)


def _as_of(gate: Mapping[str, Any], name: str, address: str, urls: Iterable[str]) -> dict[str, object]:
    """The gate's arguments of another node as they are for this one."""
    requires = dict(gate.get("requires") or {})
    own = {"name": name if requires.get("name") else "", "address": address if requires.get("address") else ""}
    return {"requires": {**requires, **own}, "needs": gate.get("needs") or {}, "urls": sorted(urls)}


def _parsed(answers: questions.Answers, form: type[T]) -> Iterator[tuple[str, T]]:
    """The answers by node; one that is none is not there, so Ansible checks that node."""
    for name, (answer, *_) in answers.items():
        with suppress(ValueError):
            yield name, RequiredFields.of(answer).part("deepops").part("node_class").fill(form)


def _stops(fact: _Facts) -> Iterator[tuple[str, str]]:
    """What keeps any deploy from its end."""
    if fact.unreachable and len(fact.unreachable) == fact.sources:
        first, why = next(iter(fact.unreachable.items()))
        yield (
            f"none of its package sources answers: {first}: {why}",
            "check the network and apt's sources there; where only a proxy leads outside, apt needs it, too",
        )
    yield from ((text, "make room there") for text in fact.room)


def _partly(fact: _Facts) -> Iterator[tuple[str, str]]:
    if len(fact.unreachable) < fact.sources:
        yield from ((f"the package source {url} does not answer: {why}", "") for url, why in fact.unreachable.items())


def _late(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A clock that is not this machine's, by the least that it can differ."""
    with suppress(ValueError):
        report = RequiredFields.of(answer).part("deepops")
        clock, asked = report.part("clock"), report.part("call").part("asked")
        low, high = clock.real("end") - asked.real("after"), clock.real("begin") - asked.real("before")
        if max(low, -high) > _CLOCK_S:
            word = "ahead of" if low > 0 else "behind"
            yield f"its clock is at least {max(low, -high):.0f} s {word} this machine's", ""


def _folded(problems: Mapping[str, Iterable[tuple[str, str]]]) -> tuple[Problem, ...]:
    """Each problem once, with all nodes that have it."""
    nodes = defaultdict[tuple[str, str], list[str]](list)
    for name, each in problems.items():
        for problem in each:
            nodes[problem].append(name)
    return tuple(Problem(tuple(names), *problem) for problem, names in nodes.items())


def left(request: RunRequest, cluster: Cluster, classes: Classes) -> tuple[str, ...]:
    """The nodes that Ansible has to check."""
    done = {*classes.like, *classes.silent}
    return tuple(node.name for node in questions.reachable_nodes(request, cluster) if node.name not in done)


def added_sources(changes: Iterable[Change], node: str) -> set[str]:
    """The package sources that a node would get, by the files that a plan shows."""
    return {url for change in changes if change.host == node for url in _ADDED.findall(change.diff)}

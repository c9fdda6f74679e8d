"""NVLink domains of several nodes (such as GB200 NVL72): read from cluster.yml and checked against its nodes.

A domain is a set of nodes with one NVLink fabric; IMEX, Slurm's channels and Slurm's blocks use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deepopsctl.gpus.gres import gres_counts
from deepopsctl.model.cluster import Gpus, NvlinkDomain
from deepopsctl.text.node_sets import expand, fold, fold_in_order, shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.sections import NvlinkDomainSection, SectionReader, dotted
from deepopsctl.text.values import check_domain_name
from deepopsctl.text.yaml_reader import Path
from deepopsctl.text.yaml_writer import flow

KEY = "nvlink_domains"
# products whose NVLink reaches beyond one node
MULTI_NODE = frozenset({"gb200", "gb300"})
_COMMENT = "# Nodes that share one NVLink fabric: IMEX, and Slurm's channels and blocks, go by them."


@dataclass(frozen=True, slots=True)
class DomainEntry:
    """One domain as written, and its place."""

    where: str
    within: str
    name: str
    nodes: str


class NvlinkDraft:
    """The domains as read; `entries` is None if cluster.yml has no `nvlink_domains`."""

    def __init__(self) -> None:
        self.entries: list[DomainEntry] | None = None

    def read(self, reader: SectionReader, whole: Mapping[str, object]) -> None:
        """Read the section."""
        listed = whole.get(KEY)
        if not isinstance(listed, list):
            return
        self.entries = []
        for index, item in enumerate(listed):
            path: Path = (KEY, index)
            section = reader.fit(NvlinkDomainSection, item, path)
            if section:
                name = reader.value((*path, "name"), check_domain_name, section.name, section.name)
                self.entries.append(DomainEntry(reader.at(path), dotted(path), name, section.nodes))

    def finish(
        self,
        gpus_of: Mapping[str, Gpus | None],
        problems: Problems,
        incomplete: bool,  # noqa: FBT001 (the draft's)
    ) -> tuple[NvlinkDomain, ...] | None:
        """The frozen domains; `gpus_of` has the nodes of the cluster in order."""
        if self.entries is None:
            return None
        checker = _Checker(gpus_of, problems, incomplete)
        domains = tuple(checker.domain(entry) for entry in self.entries)
        if self.entries:
            checker.left_out(self.entries[0])
        return domains


class _Checker:
    def __init__(self, gpus_of: Mapping[str, Gpus | None], problems: Problems, incomplete: bool) -> None:  # noqa: FBT001 (the draft's, as above)
        self.gpus_of, self.problems, self.incomplete = gpus_of, problems, incomplete
        self.names: set[str] = set()
        self.domain_of: dict[str, str] = {}

    def domain(self, entry: DomainEntry) -> NvlinkDomain:
        if entry.name in self.names:
            refusal = RefusedError(f"{entry.name} is already the name of a domain", "give each a name of its own")
            self.problems.refuse(entry.where, f"{entry.within}.name", refusal)
        self.names.add(entry.name)
        try:
            nodes = expand(entry.nodes)
        except RefusedError as unreadable:
            self.problems.refuse(entry.where, f"{entry.within}.nodes", unreadable)
            return NvlinkDomain(entry.name, ())
        for wrong in self._wrong(entry, nodes):
            self.problems.refuse(entry.where, f"{entry.within}.nodes", wrong)
        self.domain_of.update(dict.fromkeys(nodes, entry.name))
        return NvlinkDomain(entry.name, tuple(name for name in self.gpus_of if name in set(nodes)))

    def _wrong(self, entry: DomainEntry, nodes: Sequence[str]) -> Iterable[RefusedError]:
        label = shorten(entry.nodes)
        unknown = [name for name in nodes if name not in self.gpus_of]
        if unknown and not self.incomplete:
            what = f"{label} has no node {shorten(fold_in_order(unknown))}"
            yield RefusedError(what, "add it under nodes: or shorten the range")
        if len(set(nodes)) < len(nodes):
            yield RefusedError(f"{label} names a node twice", "list every node once")
        without = [name for name in nodes if name in self.gpus_of and not self.gpus_of[name]]
        if without:
            yield RefusedError(
                f"{shorten(fold_in_order(without))} without gpus", "declare `gpus:` there, or leave it out"
            )
        again = [name for name in nodes if name in self.domain_of]
        if again:
            other = self.domain_of[again[0]]
            yield RefusedError(f"{shorten(fold_in_order(again))} also in {other}", "a node is in one domain")

    def left_out(self, first: DomainEntry) -> None:
        """If domains are declared, every node with multi-node NVLink must be in one."""
        left = [
            name
            for name, gpus in self.gpus_of.items()
            if gpus and name not in self.domain_of and MULTI_NODE & gres_counts(gpus).keys()
        ]
        if left:
            what = f"no domain has {shorten(fold_in_order(left))}, whose GPUs have NVLink to other nodes"
            hint = "add it to the domain of its rack; one node by itself is a domain, too"
            self.problems.refuse(first.where, KEY, RefusedError(what, hint))


def domain_lines(domains: Sequence[NvlinkDomain] | None) -> list[str]:
    """The lines of the section for cluster.yml; empty without it."""
    if domains is None:
        return []
    if not domains:
        return ["", f"{KEY}: []"]
    return ["", _COMMENT, f"{KEY}:", *(f"  - {flow(entry)}" for entry in variable(domains))]


def variable(domains: Iterable[NvlinkDomain]) -> list[dict[str, object]]:
    """The domains for the inventory."""
    return [{"name": domain.name, "nodes": fold(domain.nodes)} for domain in domains]

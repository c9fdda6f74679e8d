"""An existing slurm.conf (with related files) as nodes, partitions and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from deepopsctl.cluster.builder import Draft, NodeEntry
from deepopsctl.gpus.gres import gres_counts
from deepopsctl.imports.detect import is_ip_address
from deepopsctl.imports.slurm_gres import settle_gpus
from deepopsctl.imports.slurm_keys import (
    BASIC_TRES,
    HOST_KEYS,
    NO_TRES,
    carry_key,
    is_among,
    known_tres,
    note_new_values,
    settle_keys,
    written_by_programs,
)
from deepopsctl.imports.slurm_lines import Line, Pair, read_lines, template_line
from deepopsctl.imports.slurm_nodes import Nodes, Partitions, batches, carried_option, short_name
from deepopsctl.model.cluster import Role
from deepopsctl.node_programs._shared.own_programs import own_among
from deepopsctl.node_programs._shared.slurm_words import whole
from deepopsctl.text import values
from deepopsctl.text.header import is_written_here
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import is_alongside, read_source, significant_lines

_LINE_KEYS = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname", "switchname")
# the first comment of `scontrol write config`
_DUMP = re.compile(r"^#\s+Configuration file for Slurm - ", re.MULTILINE)
_CONTROLLER = re.compile(r"([^()\s]+)(?:\(([^()\s]*)\))?")

# Slurm's other configuration files, and why they are not carried over.
_OTHER_FILES = {
    "cgroup.conf": "deepopsctl writes its own, from slurm_confinement",
    "topology.conf": "topologies are not managed",
    "plugstack.conf": "`deepopsctl takeover` reads it on the nodes, into slurm_plugstack",
    "job_container.conf": "private directories of jobs are job_directories in cluster.yml",
    "acct_gather.conf": "profiling plugins are not managed",
    "burst_buffer.conf": "burst buffers are not managed",
    "oci.conf": "`oci` in environment_containers makes one; keys of its own are slurm_conf_oci",
    "slurmdbd.conf": "`deepopsctl takeover` reads it on the accounting host",
}
# What deepopsctl makes its own of these from.
_MADE_FROM = {
    "topology.conf": "write its blocks as nvlink_domains in cluster.yml",
    "job_container.conf": "it comes from job_directories in cluster.yml",
    "oci.conf": "it comes from `oci` in environment_containers",
}


def draft_slurm_conf(text: str, source: str, directory: Path | None, problems: Problems) -> Draft:
    """The nodes and partitions of a slurm.conf; `directory` is its directory, None for standard input."""
    draft = Draft(source, problems)
    if number := template_line(text):
        problems.add(
            f"{source}:{number}", "this is a template, without its values", "give /etc/slurm/slurm.conf of a node"
        )
        draft.incomplete = True
        return draft
    lines = list(read_lines(text, source, directory, problems))
    dump = _is_dump(text, lines)
    if dump:
        # it has the last node first
        lines = [*(line for line in lines if not _is_node(line)), *filter(_is_node, reversed(lines))]
    written = written_by_programs(own=_is_own(text, lines), dump=dump)
    _Reader(draft, directory, written).read(lines)
    first = next(iter(draft.nodes.values()), None)
    if dump and first and not first.address:
        reason = f"`scontrol write config` leaves out the address of {first.name}"
        draft.carryover.check("SlurmctldHost", source, reason, "if that name does not resolve, write it in cluster.yml")
    return draft


def _is_own(text: str, lines: Iterable[Line]) -> bool:
    """Whether it is deepopsctl's own slurm.conf, or a dump of it."""
    return is_written_here(text) or any(own_among(pair.value) for line in lines for pair in line.pairs)


def _is_dump(text: str, lines: Iterable[Line]) -> bool:
    """Whether `scontrol write config` wrote it: each node has a line, and a key has their number."""
    if _DUMP.search(text):
        return True
    count = next((line.get("maxnodecount") for line in lines if line.get("maxnodecount")), "")
    return whole(count) == sum(_is_node(line) for line in lines) and "[" not in "".join(
        line.pairs[0].value for line in lines if _is_node(line)
    )


def _is_node(line: Line) -> bool:
    return bool(line.pairs) and line.pairs[0].name == "nodename"


class _Reader:
    def __init__(self, draft: Draft, directory: Path | None, written: Mapping[str, Collection[str]]) -> None:
        self.draft = draft
        self.written = written
        self.directory = directory
        self.problems = draft.problems
        # before the lines are read: nodes of an unreadable line are not reported as missing
        self.before = len(draft.problems)
        self.carryover = draft.carryover
        self.nodes = Nodes(draft.carryover)
        self.partitions = Partitions(self.nodes, draft)
        self.controllers: list[tuple[str, str, str]] = []
        self.pairs: dict[str, Pair] = {}
        self.places: dict[str, str] = {}

    def read(self, lines: list[Line]) -> None:
        """Read the nodes first: partitions, node sets and gres.conf refer to them."""
        lines_by_key: dict[str, list[Line]] = {first_key: [] for first_key in _LINE_KEYS}
        for line in lines:
            first_key = next(
                (first_key for first_key in _LINE_KEYS if line.pairs and line.pairs[0].name == first_key), ""
            )
            if first_key:
                lines_by_key[first_key].append(line)
            else:
                self._globals(line)
        for line in lines_by_key["nodename"]:
            self._try(line, self.nodes.add)
        self.draft.incomplete = len(self.problems) > self.before
        for first_key in ("downnodes", "frontendname", "switchname"):
            for line in lines_by_key[first_key]:
                first = line.pairs[0]
                name = f"{first.key}={shorten(first.value)}"
                self.carryover.leave(name, line.where, "states, front ends and switches are not managed")
        self._add_nodes()
        for line in lines_by_key["nodeset"]:
            self._try(line, self.partitions.add_set)
        for line in lines_by_key["partitionname"]:
            self._try(line, self.partitions.add)
        self._memory_defaults()
        self._hardware()
        settle_gpus(self.draft.nodes, self._gres_lines(), self.nodes.cores, self.carryover)
        gres = self._gres_tres()
        settle_keys(self.carryover, self.places, gres)
        self._room_for_nodes()
        self._settle_partitions(gres)
        memory = ("defmempercpu", "defmempernode", "defmempergpu")
        bare = [
            entry for entry in self.draft.partitions
            if not any(key.lower() in memory for key in entry.partition.options)
        ]  # fmt: skip
        note_new_values(self.pairs, self.draft.nodes, len(bare), self.carryover)
        self._note_other_files()

    def _try(self, line: Line, add: Callable[[Line], None]) -> None:
        try:
            for item in line.pairs:
                values.check_template(item.value)
            add(line)
        except RefusedError as refusal:
            self.draft.refuse(line.where, refusal)

    def _globals(self, line: Line) -> None:
        for item in line.pairs:
            if item.name in HOST_KEYS:
                self._host_key(item, line.where)
            elif not is_among(item, self.written):
                carry_key(item, line.where, self.carryover)
            self.pairs[item.name] = item
            self.places[item.name] = line.where

    def _host_key(self, item: Pair, where: str) -> None:
        try:
            values.check_template(item.value)
            if item.name == "clustername":
                self.draft.take_name(item.value, where)
            elif item.name in ("slurmctldhost", "controlmachine", "backupcontroller"):
                self._controllers(item, where)
        except RefusedError as refusal:
            self.draft.refuse(where, refusal)

    def _controllers(self, item: Pair, where: str) -> None:
        for text in item.value.split(","):
            match = _CONTROLLER.fullmatch(text.strip())
            if not match:
                raise RefusedError(f"{item.key}={shorten(text)} is not a host", "write NAME or NAME(ADDRESS)")
            name, address = short_name(match[1], match[2] or "")
            self.controllers.append((name, address, where))

    def _add_nodes(self) -> None:
        """Controllers first, in their order: the first is the primary."""
        addresses = {"controlmachine": "controladdr", "backupcontroller": "backupaddr"}
        for key, address_key in addresses.items():
            controller, reached = self.pairs.get(key), self.pairs.get(address_key)
            if controller and reached:
                name, _ = short_name(controller.value, "")
                self.controllers = [
                    (known, reached.value if known == name else old, where) for known, old, where in self.controllers
                ]
        for name, _, where in self.controllers[1:]:
            self.carryover.leave(
                f"backup controller {name}", where, "a second slurmctld needs a state directory that controllers share",
                "add its file system to storage: and name it in slurm_state (docs/operate/two-controllers.md)",
            )  # fmt: skip
        done = set()
        for name, address, where in self.controllers:
            entry = self.nodes.entries.get(name.lower())
            if entry:
                done.add(name.lower())
                own = entry.addresses or address
                self.draft.merge(replace(entry, addresses=own, roles=entry.roles | {Role.CONTROLLER}))
            else:
                self.draft.merge(NodeEntry(where, name, addresses=address, roles=frozenset({Role.CONTROLLER})))
        rest = [entry for name, entry in self.nodes.entries.items() if name not in done]
        for entry in batches([*rest, *self.nodes.again]):
            self.draft.add(entry)
        self._accounting_host()

    def _accounting_host(self) -> None:
        host = self.pairs.get("accountingstoragehost")
        if not host or host.value.lower() in ("localhost", "127.0.0.1", "::1"):
            return
        name, address = short_name(host.value, "")
        by_address = {node.address: node for node in self.draft.nodes.values() if node.address}
        node = self.draft.nodes.get(name.lower()) or by_address.get(host.value)
        if node:
            node.roles |= {Role.DBD}
        elif is_ip_address(host.value):
            self.carryover.leave(
                "AccountingStorageHost", self.draft.source, f"no node of the cluster has the address {host.value}",
                "add the accounting host to cluster.yml with the role dbd",
            )  # fmt: skip
        else:
            where = self.draft.source
            self.draft.merge(NodeEntry(where, name, addresses=address, roles=frozenset({Role.DBD})))

    def _memory_defaults(self) -> None:
        """Copy cluster-wide memory defaults to partitions, because deepopsctl sets one for every partition."""
        names = ("defmempercpu", "defmempernode", "defmempergpu")
        default = next((self.pairs[name] for name in names if name in self.pairs), None)
        if default:
            for index, entry in enumerate(self.draft.partitions):
                options = entry.partition.options
                if not any(key.lower() in names for key in options):
                    added = carried_option(default, entry.where, {}, self.carryover)
                    partition = replace(entry.partition, options={**options, **added})
                    self.draft.partitions[index] = replace(entry, partition=partition)

    def _hardware(self) -> None:
        for key, where in self.nodes.hardware.items():
            self.carryover.check(
                key, where, "deploy looks it up on the nodes (hardware.yml)",
                "`deepopsctl takeover` keeps what the running cluster has",
            )  # fmt: skip

    def _room_for_nodes(self) -> None:
        """slurmctld does not start with more nodes than MaxNodeCount."""
        most = whole(self.carryover.slurm("MaxNodeCount") or "")
        if most is not None and most <= len(self.nodes.entries):
            reason = f"there are {len(self.nodes.entries)} nodes already: slurmctld would not start with another one"
            self.carryover.leave("MaxNodeCount", self.places["maxnodecount"], reason)
            self.carryover.unset_slurm("MaxNodeCount")

    def _gres_tres(self) -> list[str]:
        """The TRES of the cluster's GPUs."""
        gpus = [node.gpus for node in self.draft.nodes.values() if node.gpus]
        types = sorted({gpu_type for node_gpus in gpus for gpu_type in gres_counts(node_gpus) if gpu_type})
        return ["gres/gpu", *(f"gres/gpu:{gpu_type}" for gpu_type in types)] if gpus else []

    def _settle_partitions(self, gres: Collection[str]) -> None:
        """Remove partition options whose plugin, partition or TRES is missing."""
        names = {entry.partition.name for entry in self.draft.partitions}
        preempts = bool(self.carryover.slurm("PreemptType"))
        for index, entry in enumerate(self.draft.partitions):
            options: dict[str, str] = {}
            for key, value in entry.partition.options.items():
                text, reason = value, ""
                if key.lower() == "tresbillingweights":
                    words, lost = known_tres(value, {*BASIC_TRES, *gres})
                    text, reason = ",".join(words), f"{', '.join(lost)}: {NO_TRES}" if lost else ""
                elif key.lower() == "preemptmode" and not preempts and value.lower() != "off":
                    text, reason = "", "without PreemptType there is no preemption"
                elif key.lower() == "defaulttime" and value.upper() == "NONE":
                    # `scontrol show partition` prints NONE for an unset value
                    text = ""
                elif key.lower() == "alternate" and value not in names:
                    text, reason = "", f"there is no partition {shorten(value)}"
                if reason:
                    self.carryover.leave(f"{key} of {entry.partition.name}", entry.where, reason)
                if text:
                    options[key] = text
            self.draft.partitions[index] = replace(entry, partition=replace(entry.partition, options=options))

    def _gres_lines(self) -> list[Line]:
        path = self.directory / "gres.conf" if self.directory else None
        text = read_source(path, str(path), Problems()) if path and self._is_to_be_read(path) else None
        return list(read_lines(text, str(path), self.directory, self.problems)) if text is not None else []

    def _is_to_be_read(self, path: Path) -> bool:
        """Whether a file next to slurm.conf is there; one that leads elsewhere is listed instead."""
        if path.is_file() and not is_alongside(path, path.with_name("slurm.conf")):
            self.carryover.leave(
                path.name, str(path), "it is a link out of this directory", "copy the file itself there"
            )
            return False
        return path.is_file()

    def _note_other_files(self) -> None:
        if self.directory is None:
            return
        for name, reason in _OTHER_FILES.items():
            path = self.directory / name
            text = read_source(path, name, Problems()) if self._is_to_be_read(path) else None
            lines = [line for _, line in significant_lines(text)] if text is not None else []
            if text is not None and is_written_here(text):
                self._own_file(name, str(path), lines)
            elif lines:
                self.carryover.leave(name, str(path), reason)

    def _own_file(self, name: str, where: str, lines: list[str]) -> None:
        """A file that deepopsctl wrote: what it is made from is carried over, or named."""
        if name == "plugstack.conf" and lines:
            self.carryover.settings["slurm_plugstack"] = lines
        elif name in _MADE_FROM and lines:
            self.carryover.leave(name, where, "deepopsctl wrote it", _MADE_FROM[name])

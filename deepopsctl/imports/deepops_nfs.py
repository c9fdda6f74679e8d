"""DeepOps's NFS variables as entries of `storage`: mounts are carried over, exports to all hosts are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepopsctl.cluster.builder import Draft
from deepopsctl.errors import InputError, Problem
from deepopsctl.imports.deepops_vars import is_template
from deepopsctl.imports.ini_inventory import Setting, as_text
from deepopsctl.storage.builder import StorageDraft
from deepopsctl.storage.nfs import VERSIONS
from deepopsctl.storage.spec import StorageReader
from deepopsctl.text.node_sets import fold_in_order, shorten
from deepopsctl.text.problems import Problems
from deepopsctl.text.sections import SectionReader
from deepopsctl.text.yaml_reader import Document

# The variables read here; other NFS variables get a note.
MOUNTS, EXPORTS, CLIENTS = "nfs_mounts", "nfs_exports", "nfs_client_group"

# `{{ groups['slurm-master'][0] }}`, as in DeepOps's own files
_GROUP = re.compile(r"\{\{\s*groups\[(['\"])([A-Za-z0-9_-]+)\1\]\s*(?:\[0\]|\|\s*first)\s*\}\}")
_VERSION = re.compile(r"(?:nfs)?vers=(.+)")
# set by the systemd units, or the kernel's default
_IMPLIED = frozenset({"defaults", "async", "auto", "nofail", "_netdev", "hard", "proto=tcp", "tcp"})
_SERVED = "only the cluster's own addresses may mount it"


@dataclass(frozen=True, slots=True)
class InventoryHosts:
    """Hosts of the inventory: by pattern, their names in cluster.yml, and the NFS servers."""

    hosts: Callable[[str], Sequence[str]]
    names: Mapping[str, str]
    servers: frozenset[str]


def carry_nfs(settings: Mapping[str, Setting], inventory: InventoryHosts, draft: Draft) -> None:
    """Add the mounts to the draft, with notes on what is not carried over."""
    _Importer(settings, inventory, draft).read()


class _Importer:
    def __init__(self, settings: Mapping[str, Setting], inventory: InventoryHosts, draft: Draft) -> None:
        self.settings = settings
        self.inventory = inventory
        self.draft = draft
        self.carryover = draft.carryover
        self.exports = {
            as_text(item["path"]): as_text(item.get("options")) for item in self._entries(EXPORTS) if "path" in item
        }
        self.served: set[str] = set()

    def read(self) -> None:
        """Read all mounts, then note exports that no node mounts."""
        if MOUNTS not in self.settings and CLIENTS in self.settings:
            self.carryover.leave(CLIENTS, self.settings[CLIENTS].where, "what they mount is not specified",
                                 "list it under storage: in cluster.yml")  # fmt: skip
        for item in self._entries(MOUNTS):
            self._mount(item)
        for path in self.exports:
            if path not in self.served:
                self.carryover.leave(f"{EXPORTS}: {shorten(path)}", self.settings[EXPORTS].where,
                                     "no node of the cluster mounts it")  # fmt: skip

    def _entries(self, name: str) -> Iterator[Mapping[str, object]]:
        setting = self.settings.get(name)
        if setting is None:
            return
        listed = setting.value
        good = [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
        if not isinstance(listed, list) or len(good) < len(listed):
            self.carryover.leave(name, setting.where, "it is no list of mappings", "list it under storage:")
        yield from good

    def _mount(self, item: Mapping[str, object]) -> None:
        path, where = as_text(item.get("mountpoint")).rstrip("/"), self.settings[MOUNTS].where
        label = f"{MOUNTS}: {shorten(path)}"
        server = self._server(as_text(item.get("server")))
        if not server:
            self.carryover.leave(label, where, "its server is a template", "name the server under storage:")
            return
        options = [word.strip() for word in as_text(item.get("options")).split(",") if word.strip()]
        source = as_text(item.get("path")) or path
        faults = self._add(self._entry(path, server, source, options), where)
        if faults:
            self.carryover.leave(label, where, faults[0].message, "list it under storage: in cluster.yml")
        else:
            self._check_export(label, where, server, source)

    def _add(self, entry: Mapping[str, object], where: str) -> Sequence[Problem]:
        """Add an entry as if from cluster.yml; returns its problems."""
        source, _, line = where.rpartition(":")
        trial, read = Problems(), StorageDraft()
        document = Document(None, {(): int(line) if line.isdecimal() else 1})
        StorageReader(SectionReader(document, source or where, trial), read).read({"storage": [entry]})
        try:
            trial.raise_if_any()
        except InputError as error:
            return error.problems
        self.draft.storage.entries += read.entries
        return ()

    def _entry(self, path: str, server: str, source: str, words: Sequence[str]) -> dict[str, object]:
        version = next((match[1] for word in words if (match := _VERSION.fullmatch(word))), "")
        options = [word for word in words if word not in _IMPLIED and not _VERSION.fullmatch(word)]
        nfs: dict[str, object] = {}
        if server in self.inventory.names and server not in self.inventory.servers:
            nfs["serve"] = False
        elif server not in self.inventory.names and version in VERSIONS:
            # the cluster's own servers have the newest version
            nfs["version"] = version
        entry: dict[str, object] = {
            "name": re.sub(r"[^a-z0-9_-]+", "-", path.lower()).strip("-"),
            "type": "nfs",
            "source": f"{self.inventory.names.get(server, server)}:{source}",
            "path": path,
            "options": options,
        }
        nodes = self._nodes(server)
        return entry | ({"nodes": nodes} if nodes else {}) | ({"nfs": nfs} if nfs else {})

    def _nodes(self, server: str) -> str:
        """The client nodes; '' if they are all nodes but the server."""
        setting = self.settings.get(CLIENTS)
        hosts = self.inventory.hosts(as_text(setting.value)) if setting else ()
        names = [self.inventory.names[host] for host in hosts if host in self.inventory.names and host != server]
        everybody = {name for host, name in self.inventory.names.items() if host != server}
        return fold_in_order(dict.fromkeys(names)) if names and set(names) != everybody else ""

    def _server(self, text: str) -> str:
        """The host of one of DeepOps's own templates, or the server's name; '' for other templates."""
        group = _GROUP.fullmatch(text)
        if group:
            return next(iter(self.inventory.hosts(group[2])), "")
        return "" if is_template(text) else text

    def _check_export(self, label: str, where: str, server: str, path: str) -> None:
        """Add a note if an export becomes narrower: DeepOps exports to all hosts with no_root_squash."""
        if server not in self.inventory.servers or path not in self.exports:
            return
        self.served.add(path)
        hint = "set squash: none under its nfs: to keep root access from every node"
        if "no_root_squash" in self.exports[path]:
            self.carryover.check(label, where, f"{_SERVED}, and their root user is mapped to nobody", hint)
        elif self.exports[path].startswith("*"):
            self.carryover.check(label, where, _SERVED)

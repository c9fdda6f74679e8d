"""NFS exports of a node: lines of exports(5), by the clients' addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deepopsctl.model.storage import Mount
from deepopsctl.storage.nfs import SQUASH, split_source
from deepopsctl.storage.node_plan import clients_of


@dataclass(frozen=True, slots=True)
class Export:
    """An exported directory and its exports(5) line."""

    path: str
    line: str


def exports_of(mounts: Iterable[Mount], host: str, addresses: Mapping[str, str]) -> tuple[Export, ...]:
    """Exports of this node; a directory named by several entries is one export, for the clients of all of them."""
    clients: dict[str, dict[str, None]] = {}
    rules: dict[str, str] = {}
    for mount in mounts:
        if mount.server == host:
            path = split_source(mount.source)[1]
            clients.setdefault(path, {}).update(dict.fromkeys(clients_of(mount, addresses)))
            rules[path] = _rules(mount)
    return tuple(
        Export(path, " ".join([path, *(f"{client}({rules[path]})" for client in clients[path])]))
        for path in clients
        if clients[path]
    )


def uses_rdma(mounts: Iterable[Mount], host: str) -> bool:
    """Whether any client mounts over RDMA from this node."""
    return any(mount.server == host and bool(mount.settings.get("rdma")) for mount in mounts)


def _rules(mount: Mount) -> str:
    access = "ro" if mount.settings.get("read_only") else "rw"
    # sync: what the server confirms is on its disk; a crash loses nothing that a client believes to be written
    return f"{access},sync,no_subtree_check,{SQUASH[str(mount.settings.get('squash', 'root'))]}"

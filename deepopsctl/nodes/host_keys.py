"""Pinned host keys of removed or replaced nodes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import Target, quoted
from deepopsctl.cluster.way import port_of
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.run.request import control_dir
from deepopsctl.ssh.client import Client
from deepopsctl.ssh.host_keys import HostKeys, KnownHosts, NoAnswerError, best, host_label, labels_of


def forget(directory: ClusterDir, cluster: Cluster, names: Iterable[str]) -> None:
    """Remove the pinned host keys of these nodes, by name and by address."""
    gone = frozenset(names)
    labels = [
        host_label(label, port_of(cluster, node))
        for node in cluster.nodes
        if node.name in gone
        for label in (node.name, node.address)
        if label
    ]
    pins = KnownHosts(directory.known_hosts)
    if any(pins.keys(label) for label in labels):
        pins.replace(labels, ())


@dataclass(frozen=True, slots=True)
class HostKeyComparison:
    """The best pinned host key of a node, and the best one that it shows now."""

    pinned: str
    shown: str

    @property
    def same(self) -> bool:
        """Whether both keys are identical: the same host, or one with its keys."""
        return self.pinned == self.shown


def compare(directory: ClusterDir, cluster: Cluster, node: Node, patience_s: float) -> HostKeyComparison | None:
    """Compare the pinned key with the one shown at the node's address; None behind a jump host."""
    if cluster.access.jump_host:
        return None
    client = Client(directory.known_hosts)
    hostkeys = HostKeys(KnownHosts(directory.known_hosts), (), client)
    target = Target(node.name, node.address or node.name, cluster.access.user, port_of(cluster, node))
    route = client.route(target)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            offered = hostkeys.offered(target)
        except NoAnswerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
            continue
        pinned = {key for label in labels_of(target, route) for key in hostkeys.pins.keys(label)}
        types = {key.type for key in pinned} & {key.type for key in offered}
        best_keys = (best(key for key in keys if key.type in types or not types) for keys in (pinned, offered))
        return HostKeyComparison(*best_keys)


def close_connections(directory: ClusterDir) -> None:
    """Close the persistent SSH connections: they may lead to a host that is gone."""
    socket_dir = control_dir(directory.path, os.environ)
    for socket in socket_dir.iterdir():
        if socket.is_socket():
            command = ["ssh", "-O", "exit", "-o", f"ControlPath={quoted(socket)}", "unused"]
            subprocess.run(command, capture_output=True, timeout=20, check=False)
            socket.unlink(missing_ok=True)
    with suppress(OSError):
        socket_dir.rmdir()

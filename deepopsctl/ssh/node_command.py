"""One command on one node, by the cluster's own key and pinned host keys."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import Target, inventory_option, options, quoted
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.ssh.client_config import port_of


def command_on(directory: ClusterDir, cluster: Cluster, node: Node, remote: Sequence[str]) -> list[str]:
    """The ssh command that runs `remote` on a node; it ends with code 255 where the node can't be reached."""
    target = Target(node.name, node.address or node.name, cluster.access.user, port_of(cluster, node))
    key = Path(cluster.access.key).expanduser() if cluster.access.key else directory.ssh_key
    login = options({
        "UserKnownHostsFile": quoted(directory.known_hosts), "StrictHostKeyChecking": "yes", "BatchMode": "yes",
        "IdentityFile": quoted(directory.path / key), "ConnectTimeout": 10, "LogLevel": "ERROR",
    })  # fmt: skip
    jump = cluster.access.jump_host
    way = shlex.split(inventory_option(jump, str(directory.path / key), str(directory.known_hosts))) if jump else []
    return ["ssh", "-T", *login, *way, *target.arguments(), shlex.join(remote)]

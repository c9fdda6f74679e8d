"""Reading what the monitoring host collected of the nodes' journals: journalctl there, through ssh."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.clusterdir import ClusterDir
from deepopsctl.logcollector.places import files_of
from deepopsctl.model import Cluster, Node, Role
from deepopsctl.ssh.clientconfig import port_of
from deepopsctl.ssh.jump import inventory_option
from deepopsctl.ssh.target import Target, options, quoted


@dataclass(frozen=True, slots=True)
class Question:
    """What of the journals is asked for; as journalctl takes it, '' and 0 for no such limit."""

    units: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    priority: str = ""
    lines: int = 0
    follow: bool = False

    def arguments(self) -> list[str]:
        """The options of journalctl."""
        given = {"--since": self.since, "--until": self.until, "--priority": self.priority}
        return [
            *(f"--unit={unit}" for unit in self.units),
            *(f"{option}={value}" for option, value in given.items() if value),
            *([f"--lines={self.lines}"] if self.lines else []),
            *(["--follow"] if self.follow else []),
        ]


def log_host(cluster: Cluster) -> Node:
    """The machine that has the journals of all."""
    return cluster.with_role(Role.MONITORING)[0]


def ssh_command(directory: ClusterDir, cluster: Cluster, nodes: Sequence[Node], question: Question) -> list[str]:
    """What to run here to read the journals of these nodes."""
    host = log_host(cluster)
    target = Target(host.name, host.address or host.name, cluster.access.user, port_of(cluster, host))
    key = Path(cluster.access.key).expanduser() if cluster.access.key else directory.ssh_key
    login = options({
        "UserKnownHostsFile": quoted(directory.known_hosts), "StrictHostKeyChecking": "yes", "BatchMode": "yes",
        "IdentityFile": quoted(directory.path / key), "ConnectTimeout": 10, "LogLevel": "ERROR",
    })  # fmt: skip
    jump = cluster.access.jump_host
    way = shlex.split(inventory_option(jump, str(directory.path / key), str(directory.known_hosts))) if jump else []
    return ["ssh", "-T", *login, *way, *target.arguments(), shlex.join(_journalctl(cluster, nodes, question))]


def _journalctl(cluster: Cluster, nodes: Sequence[Node], question: Question) -> list[str]:
    # by the node's own files: which line is whose was decided by its certificate, not by what the line says
    files = [f"--file={files_of(node.name)}" for node in nodes]
    sudo = [] if cluster.access.user == "root" else ["sudo", "-n"]
    return [*sudo, "journalctl", "--no-pager", "--quiet", *files, *question.arguments()]

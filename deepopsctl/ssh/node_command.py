"""One command on one node, by the cluster's own key and pinned host keys."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import (
    ALONE,
    CONFINED,
    Target,
    inventory_option,
    options,
    quoted,
    withheld,
    without_variables,
)
from deepopsctl.errors import UnreachableError
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.ssh.client_config import port_of

_SSH_FAILED = 255


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended on a node (a shell's status), and what it printed."""

    status: int
    output: str
    errors: str

    @property
    def reason(self) -> str:
        """The last line of the error text."""
        return (self.errors.strip().splitlines() or [f"exit code {self.status}"])[-1]


def ask(
    directory: ClusterDir,
    cluster: Cluster,
    node: Node,
    remote: Sequence[str],
    *,
    as_root: bool = False,
    timeout_s: float | None = None,
) -> Answer:
    """Run a command on a node and wait for its end; an UnreachableError where the node does not answer."""
    command = command_on(directory, cluster, node, remote, as_root=as_root)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False,
            timeout=timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{node.name} does not answer", "see `deepopsctl doctor`") from error
    answer = Answer(done.returncode, done.stdout, done.stderr)
    if done.returncode == _SSH_FAILED:
        raise UnreachableError(f"{node.name} can't be reached: {answer.reason}", "see `deepopsctl ssh setup`")
    return answer


def command_on(
    directory: ClusterDir, cluster: Cluster, node: Node, remote: Sequence[str], *, as_root: bool = False
) -> list[str]:
    """The ssh command that runs `remote` on a node; it ends with code 255 where the node can't be reached."""
    way = Way(directory, cluster, cluster.access.user, {"ConnectTimeout": "10", **ALONE})
    hidden = withheld([way.target(node)], os.environ)
    return [*without_variables(hidden), *way.command(node, remote, as_root=as_root)]


@dataclass(frozen=True, slots=True)
class Way:
    """How the nodes of a cluster are reached by its key, as `user`, with these options of ssh.

    `sockets` is where connections are kept, by the names that Ansible gives them: one serves both.
    """

    directory: ClusterDir
    cluster: Cluster
    user: str
    options: Mapping[str, str]
    sockets: Path | None = None

    def target(self, node: Node) -> Target:
        """The node, as ssh is told it."""
        return Target(node.name, node.address or node.name, self.user, port_of(self.cluster, node))

    def command(self, node: Node, remote: Sequence[str], *, as_root: bool) -> list[str]:
        """The ssh command that runs `remote` there."""
        directory, access, target = self.directory, self.cluster.access, self.target(node)
        key = directory.path / (Path(access.key).expanduser() if access.key else directory.ssh_key)
        pairs: dict[str, object] = {
            "UserKnownHostsFile": quoted(directory.known_hosts), "StrictHostKeyChecking": "yes", "BatchMode": "yes",
            "IdentityFile": quoted(key), "LogLevel": "ERROR", **CONFINED, **self.options,
        }  # fmt: skip
        if self.sockets:
            # ansible/plugins/connection/ssh.py: _create_control_path
            of_ansible = f"{target.destination}-{target.port or None}-{target.user}"
            name = sha1(of_ansible.encode(), usedforsecurity=False).hexdigest()[:10]
            pairs["ControlPath"] = quoted(self.sockets / name)
        jump = access.jump_host
        through = shlex.split(inventory_option(jump, str(key), str(directory.known_hosts))) if jump else []
        sudo = ["sudo", "-n"] if as_root and self.user != "root" else []
        return ["ssh", "-T", *options(pairs), *through, *target.arguments(), shlex.join([*sudo, *remote])]

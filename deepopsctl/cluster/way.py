"""The ssh command that reaches a node of a cluster by its key and pinned host keys."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import CONFINED, Target, inventory_option, options, quoted
from deepopsctl.model.cluster import Cluster, Node

# One attempt, so that a wrong password locks no account: sudo has nothing more to read. What it grants is good for the
# commands of this shell for some minutes; where a site allows none, the second sudo refuses.
_WITH_PASSWORD = """IFS= read -r password && printf '%s\\n' "$password" | sudo -S -p '' -v && sudo -n "$@" """.strip()


def port_of(cluster: Cluster, node: Node) -> int:
    """The node's SSH port, 0 for ssh's default."""
    return node.port or cluster.access.port


def one_of_each_kind(nodes: Iterable[Node]) -> list[Node]:
    """The first node of each set of roles: ~/.ssh/config may have something of its own for each."""
    return list({node.roles: node for node in reversed(list(nodes))}.values())


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
    sudo_password: str = field(default="", repr=False)

    def target(self, node: Node) -> Target:
        """The node, as ssh has to know it."""
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
        sudo = self._sudo() if as_root else []
        return ["ssh", "-T", *options(pairs), *through, *target.arguments(), shlex.join([*sudo, *remote])]

    def data(self, text: bytes) -> bytes:
        """The input of a command as root: sudo's password comes before what the command itself reads."""
        return (f"{self.sudo_password}\n".encode() if self.user != "root" and self.sudo_password else b"") + text

    def _sudo(self) -> list[str]:
        if self.user == "root":
            return []
        return ["sh", "-c", _WITH_PASSWORD, "sh"] if self.sudo_password else ["sudo", "-n"]

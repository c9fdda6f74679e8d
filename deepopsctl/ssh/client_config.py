"""~/.ssh/config text: for the cluster's users (`ssh config`), and for the first controller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepopsctl.model.cluster import Cluster, Node, Role


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One `Host` section."""

    patterns: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def render(self) -> str:
        """The section's lines."""
        lines = [f"Host {' '.join(self.patterns)}", *(f"    {key} {value}" for key, value in self.options)]
        return "\n".join(lines) + "\n"


def users_config(cluster: Cluster, known_hosts: Path, user: str = "") -> str:
    """The users' ~/.ssh/config section: login nodes directly, other nodes through the first of them."""
    login_nodes = cluster.with_role(Role.LOGIN) or cluster.controllers[:1]
    entries = [_users_entry(cluster, node, _jump(cluster, node, login_nodes), user) for node in cluster.nodes]
    return (
        f'# SSH to the nodes of the cluster "{cluster.name}", made by `deepopsctl ssh config`.\n'
        f"# Save it as ~/.ssh/{cluster.name}.config and begin ~/.ssh/config with: Include {cluster.name}.config\n"
        f"# So that ssh asks no questions, copy {known_hosts}\n"
        f"# to ~/.ssh/{cluster.name}.known_hosts: it has the nodes' host keys.\n"
        + "".join("\n" + entry.render() for entry in entries)
    )


def controller_config(cluster: Cluster, base: str) -> str:
    """The first controller's configuration: every node by name and address, with the controller's own key."""
    head = f'# Written by `deepopsctl ssh setup` for the cluster "{cluster.name}": changes made here are lost.\n'
    common = (
        ("IdentityFile", f"~/.ssh/{base}"),
        ("UserKnownHostsFile", f"~/.ssh/{base}.known_hosts ~/.ssh/known_hosts"),
    )
    user = (("User", cluster.access.user),) if cluster.access.user else ()
    entries = [HostEntry(_patterns(node), (*_where(cluster, node), *user, *common)).render() for node in cluster.nodes]
    return head + "".join("\n" + entry for entry in entries)


def port_of(cluster: Cluster, node: Node) -> int:
    """The node's SSH port, 0 for ssh's default."""
    return node.port or cluster.access.port


def _users_entry(cluster: Cluster, node: Node, jump: str, user: str) -> HostEntry:
    known = f"~/.ssh/known_hosts ~/.ssh/{cluster.name}.known_hosts"
    options = [*_where(cluster, node)]
    options += [("User", user)] if user else []
    options += [("ProxyJump", jump)] if jump else []
    return HostEntry((node.name,), (*options, ("UserKnownHostsFile", known)))


def _jump(cluster: Cluster, node: Node, login_nodes: tuple[Node, ...]) -> str:
    return cluster.access.jump_host if node in login_nodes else login_nodes[0].name


def _patterns(node: Node) -> tuple[str, ...]:
    return (node.name, node.address) if node.address else (node.name,)


def _where(cluster: Cluster, node: Node) -> tuple[tuple[str, str], ...]:
    port = port_of(cluster, node)
    return (
        *((("HostName", node.address),) if node.address else ()),
        *((("Port", str(port)),) if port else ()),
    )

"""~/.ssh/config for the cluster's users and for the first controller, which reaches every node without a question.

The first controller's key pair is made on it and never leaves it. Names need not resolve there yet (/etc/hosts comes
with the deployment): one `Include` line on top of the user's ~/.ssh/config adds a managed file with a Host entry
for each node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.ssh.client import last_words
from deepopsctl.ssh.host_keys import KnownHosts, host_label
from deepopsctl.ssh.remote_scripts import Report, controller_script
from deepopsctl.ssh.results import NodeResult, Status
from deepopsctl.ssh.session import Session, key_login


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


def base_name(cluster: Cluster) -> str:
    """The prefix of managed files in the controller's ~/.ssh; the key pair has exactly this name."""
    return f"deepopsctl-{cluster.name}"


def controller_known_hosts(cluster: Cluster, pins: KnownHosts) -> str:
    """The pinned keys, by the names and addresses that nodes use for each other."""
    lines = []
    for node in cluster.nodes:
        port = port_of(cluster, node)
        labels = list(dict.fromkeys(host_label(name, port) for name in (node.name, node.address) if name))
        keys = sorted({key for label in labels for key in pins.keys(label)})
        lines += [f"{','.join(labels)} {key.type} {key.blob}\n" for key in keys]
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class ControllerAccess:
    """The controller's report: whether its files changed, which nodes it could not log in to, and why."""

    changed: bool
    missed: dict[str, str]
    problem: str = ""

    def apply(self, result: NodeResult, controller: str) -> NodeResult:
        """The node's result, with the controller's findings."""
        if result.name == controller:
            if self.problem:
                return replace(result, status=Status.FAILED, message=self.problem, hint="fix this, then run again")
            if self.changed:
                text = "its access to the nodes set up"
                return replace(result, changed=True, message="; ".join(filter(None, (result.message, text))))
        if result.ok and result.name in self.missed:
            message = f"{controller} can't log in here: {self.missed[result.name]}"
            hint = f"run `ssh {result.name}` on {controller}; `--no-controller-key` skips this"
            return replace(result, status=Status.FAILED, message=message, hint=hint)
        return result


def set_up_controller_access(session: Session, cluster: Cluster, names: Iterable[str]) -> ControllerAccess:
    """Install configuration and host keys on the controller, and log in from there to every given node."""
    tools = session.tools
    base = base_name(cluster)
    known_hosts = controller_known_hosts(cluster, tools.hostkeys.pins)
    script = controller_script(base, controller_config(cluster, base), known_hosts, list(names))
    answer = tools.client.login(session.target, key_login(tools.key.private), script)
    report = Report.read(answer.output)
    changed = bool(report.all("changed"))
    # the report lists the failed logins
    if not answer.ok and not report.all("reached") and not report.all("missed"):
        return ControllerAccess(changed, {}, report.last("error") or answer.reason)
    pairs = (line.partition(" ") for line in report.all("missed"))
    missed = {name: last_words(reason) or "no reason" for name, _, reason in pairs}
    return ControllerAccess(changed, missed)


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

"""~/.ssh/config for the cluster's users and for the first controller, which reaches every node without a question.

The first controller's key pair is made on it, in root's directory, and never leaves it. Names need not resolve there
yet (/etc/hosts comes with the deployment): one `Include` line on top of the user's ~/.ssh/config adds a managed file
with a Host entry for each node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from deepopsctl.cluster.way import port_of
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.ssh.client import last_words
from deepopsctl.ssh.host_keys import KnownHosts, host_label
from deepopsctl.ssh.remote_scripts import Report, controller_script
from deepopsctl.ssh.results import NodeResult, Status
from deepopsctl.ssh.session import Session, key_login

_USERS_HEAD = """\
# SSH to the nodes of the cluster "{name}", made by `deepopsctl ssh config`.
# Save it as ~/.ssh/{name}.config and begin ~/.ssh/config with: Include {name}.config
# So that ssh asks no questions, save what `deepopsctl ssh config --known-hosts` prints as ~/.ssh/{name}.known_hosts.
"""
_USERS_RECIPES = """\
# A shell on a compute node where you have a job, and in that job: ssh NODE, or for your newest job: ssh {job}
# VS Code: install "Remote - SSH", start a job (sbatch, salloc), then "Connect to Host": {job}
# Jupyter: start it in a job with --no-browser --port=8888, then: ssh -L 8888:localhost:8888 {job}
# Copy files: rsync -a DIR {gateway}:
"""
# %% is a percent sign to ssh, which puts `exec` before it. The first host of the newest running job.
_TO_NEWEST_JOB = (
    "sh -c '"
    'node=$(ssh -n {gateway} "squeue --me --states=RUNNING --sort=-S --noheader --format=%%B" | head -n 1); '
    'test -n "$node" || {{ echo "you have no running job" >&2; exit 1; }}; exec ssh -W "$node:{port}" {gateway}\''
)


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One `Host` section."""

    patterns: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    def render(self) -> str:
        """The section's lines."""
        lines = [f"Host {' '.join(self.patterns)}", *(f"    {key} {value}" for key, value in self.options)]
        return "\n".join(lines) + "\n"


def users_config(cluster: Cluster, user: str = "") -> str:
    """The users' ~/.ssh/config section: login nodes directly, other nodes through them, and recipes as comments."""
    login_nodes = cluster.with_role(Role.LOGIN) or cluster.controllers[:1]
    gateway = cluster.name if cluster.access.login_name else login_nodes[0].name
    common = (*((("User", user),) if user else ()), ("UserKnownHostsFile", _known_hosts(cluster)))
    jump = (("ProxyJump", cluster.access.jump_host),) if cluster.access.jump_host else ()
    entries = [HostEntry((node.name,), (*_where(cluster, node), *jump, *common)) for node in login_nodes]
    if cluster.access.login_name:
        port = (("Port", str(cluster.access.port)),) if cluster.access.port else ()
        options = (("HostName", cluster.access.login_name), *port, *jump, *common)
        entries.insert(0, HostEntry((cluster.name, cluster.access.login_name), options))
    # the login node resolves their names
    behind: dict[int, list[str]] = {}
    for node in cluster.nodes:
        if node not in login_nodes:
            behind.setdefault(port_of(cluster, node), []).append(node.name)
    for number, names in behind.items():
        port = (("Port", str(number)),) if number else ()
        # a pattern can't tell nodes with another port apart
        patterns = names if len(behind) > 1 else _name_patterns(names, [node.name for node in login_nodes])
        entries.append(HostEntry(tuple(patterns), (*port, ("ProxyJump", gateway), *common)))
    job = job_alias(cluster)
    head = _USERS_HEAD.format(name=cluster.name)
    recipes = _USERS_RECIPES.format(job=job, gateway=gateway)
    number = next((port_of(cluster, node) for node in cluster.compute), 0) or 22
    newest = HostEntry((job,), (("ProxyCommand", _TO_NEWEST_JOB.format(gateway=gateway, port=number)), *common))
    return "\n".join([head, *(entry.render() for entry in [*entries, newest]), recipes])


def users_known_hosts(cluster: Cluster, pins: KnownHosts) -> str:
    """The users' known_hosts: pinned keys of all nodes, by their names, and by what stands for several of them."""
    login_nodes = cluster.with_role(Role.LOGIN) or cluster.controllers[:1]
    lines = []
    for node in cluster.nodes:
        port = port_of(cluster, node)
        labels = [host_label(name, port) for name in (node.name, node.address) if name]
        keys = sorted({key for label in labels for key in pins.keys(label)})
        if node in login_nodes and cluster.access.login_name:
            labels.append(host_label(cluster.access.login_name, cluster.access.port))
        if Role.COMPUTE in node.roles:
            labels.append(job_alias(cluster))
        lines += [f"{','.join(dict.fromkeys(labels))} {key.type} {key.blob}\n" for key in keys]
    return "".join(lines)


def job_alias(cluster: Cluster) -> str:
    """What users type for the node of their newest running job."""
    return f"{cluster.name}-job"


def controller_config(cluster: Cluster, base: str, identity: str) -> str:
    """The first controller's configuration: every node by name and address, with the controller's own key there."""
    head = f'# Written by `deepopsctl ssh setup` for the cluster "{cluster.name}": changes made here are lost.\n'
    common = (
        ("IdentityFile", identity),
        ("UserKnownHostsFile", f"~/.ssh/{base}.known_hosts ~/.ssh/known_hosts"),
    )
    user = (("User", cluster.access.user),) if cluster.access.user else ()
    entries = [HostEntry(_patterns(node), (*_where(cluster, node), *user, *common)).render() for node in cluster.nodes]
    return head + "".join("\n" + entry for entry in entries)


def base_name(cluster: Cluster) -> str:
    """The prefix of managed files in the controller's ~/.ssh; its key pair has exactly this name."""
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
    script = controller_script(
        base, controller_config(cluster, base, session.controller_identity), known_hosts, list(names)
    )
    answer = tools.client.login(session.target, key_login(tools.key.private), script)
    report = Report.read(answer.output)
    changed = bool(report.all("changed"))
    # the report lists the failed logins
    if not answer.ok and not report.all("reached") and not report.all("missed"):
        return ControllerAccess(changed, {}, report.last("error") or answer.reason)
    pairs = (line.partition(" ") for line in report.all("missed"))
    missed = {name: last_words(reason) or "no reason" for name, _, reason in pairs}
    return ControllerAccess(changed, missed)


def _known_hosts(cluster: Cluster) -> str:
    return f"~/.ssh/known_hosts ~/.ssh/{cluster.name}.known_hosts"


def _name_patterns(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """`gpu??` for gpu01 to gpu99; without the `others`, which must not jump to themselves."""
    patterns = list(dict.fromkeys(re.sub("[0-9]", "?", name) for name in names))
    return patterns + [f"!{other}" for other in others if any(fnmatchcase(other, pattern) for pattern in patterns)]


def _patterns(node: Node) -> tuple[str, ...]:
    return (node.name, node.address) if node.address else (node.name,)


def _where(cluster: Cluster, node: Node) -> tuple[tuple[str, str], ...]:
    port = port_of(cluster, node)
    return (
        *((("HostName", node.address),) if node.address else ()),
        *((("Port", str(port)),) if port else ()),
    )

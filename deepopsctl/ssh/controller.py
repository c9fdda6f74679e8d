"""The first controller's access to every node: `ssh gpu01` works there, by name or address, without a question.

Its key pair is made on it and never leaves it. Names need not resolve there yet (/etc/hosts comes with the
deployment): one `Include` line on top of the user's ~/.ssh/config adds a managed file with a Host entry
for each node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deepopsctl.model.cluster import Cluster
from deepopsctl.ssh.client_config import controller_config, port_of
from deepopsctl.ssh.exit_status import last_words
from deepopsctl.ssh.known_hosts import KnownHosts, host_label
from deepopsctl.ssh.remote_scripts import Report, controller_script
from deepopsctl.ssh.results import NodeResult, Status
from deepopsctl.ssh.session import Session, key_login


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

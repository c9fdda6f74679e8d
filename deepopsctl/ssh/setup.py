"""`ssh setup`: the cluster's key on every node, pinned host keys, verified logins and sudo.

Order: jump hosts, then the first controller (its own public key is installed on the others in the same login as
the cluster key), then all other nodes at once, then the controller again for its configuration.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import Target, jump_login, jump_target, options, proxy_command, quoted
from deepopsctl.cluster.way import port_of
from deepopsctl.errors import InterruptedRunError
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.run.lock import cluster_lock
from deepopsctl.ssh.client import Client
from deepopsctl.ssh.client_config import ControllerAccess, base_name, set_up_controller_access
from deepopsctl.ssh.host_keys import HostKeys, KnownHosts, host_label
from deepopsctl.ssh.key_pair import KeyPair, ensure_key_pair, public_line
from deepopsctl.ssh.passwords import AskPass
from deepopsctl.ssh.results import NodeResult, OnNode, SetupResult, Status
from deepopsctl.ssh.session import JumpSession, Password, Round, Session, Tools
from deepopsctl.text.amounts import amount

# the old host's entry in the controller's neighbour table outlives it by up to a minute
_NOBODY = re.compile(r"timed out|no route to host|host is down", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """What to set up, and how to log in the first time. `nodes`: all of the cluster's nodes or some.

    `patience_s` is for new hosts at an old address: the controller may reach the old one a while longer.
    """

    directory: ClusterDir
    cluster: Cluster
    nodes: tuple[Node, ...]
    password: str = ""
    ask: Callable[[], str] | None = None
    own_keys: bool = True
    identity: Path | None = None
    sudo_password: str | None = None
    accept_new_keys: frozenset[str] = frozenset()
    controller_key: bool = True
    connect_timeout: int = 10
    patience_s: float = 0


def run_setup(request: SetupRequest, on_node: OnNode) -> SetupResult:
    """Run the setup. Failed nodes are in the result; only errors that stop everything are raised."""
    done: dict[str, NodeResult] = {}

    def note(result: NodeResult) -> None:
        done[result.name] = result
        on_node(result)

    client = Client(request.directory.known_hosts, request.connect_timeout)
    with cluster_lock(request.directory.runs, "ssh setup"), AskPass(request.directory.path) as askpass:
        key = cluster_key(request.directory, request.cluster)
        pins = KnownHosts(request.directory.known_hosts)
        tools = Tools(
            client, HostKeys(pins, _trusted(), client), askpass, key,
            frozenset(node.name for node in request.cluster.nodes),
            request.identity, request.own_keys, request.sudo_password,
        )  # fmt: skip
        try:
            return _Setup(request, tools, Round(Password(request.password, request.ask), note, client.stop)).set_up()
        except KeyboardInterrupt as error:
            raise _interrupted(request, done) from error
        finally:
            client.stop()


def cluster_key(directory: ClusterDir, cluster: Cluster) -> KeyPair:
    """The key pair for logins to the nodes: cluster.yml's, or the cluster's own, made on first use."""
    if cluster.access.key:
        private = directory.path / Path(cluster.access.key).expanduser()
        return KeyPair(private, public_line(private))
    return ensure_key_pair(directory.ssh_key, f"deepopsctl cluster {cluster.name}")


@dataclass(slots=True)
class _Setup:
    """One run: the request, the shared tools, and the results so far."""

    request: SetupRequest
    tools: Tools
    round: Round
    proxy: str = ""
    warnings: list[str] = field(default_factory=list)

    def set_up(self) -> SetupResult:
        jump = self._jump()
        if jump and not jump.ok:
            nodes = tuple(_behind(node, jump) for node in self.request.nodes)
            return SetupResult(nodes, jump)
        first = self.request.cluster.controllers[0]
        controller = self._session(first, own_key=self.request.controller_key)
        results = self.round.try_all([controller]) if first in self.request.nodes else self._outside(controller)
        if controller.sudo_refused:
            # more attempts could lock a central account
            self.tools.sudo_password = None
            self.warnings.append(f"sudo refused the password on {first.name}: it was not tried on the others")
        others = [node for node in self.request.nodes if node != first]
        results |= self.round.try_all([self._session(node, controller.controller_key) for node in others])
        if controller.controller_key:
            ready = [name for name, result in results.items() if result.ok]
            access = self._set_up_controller(controller, ready)
            results = {name: access.apply(result, first.name) for name, result in results.items()}
        self._find_clones()
        return SetupResult(tuple(results[node.name] for node in self.request.nodes), jump, tuple(self.warnings))

    def _set_up_controller(self, controller: Session, names: list[str]) -> ControllerAccess:
        """Let the controller log in everywhere; retry unreachable nodes until `patience_s` is over."""
        deadline = time.monotonic() + self.request.patience_s
        access = set_up_controller_access(controller, self.request.cluster, names)
        while lost := [name for name, reason in access.missed.items() if _NOBODY.search(reason)]:
            if time.monotonic() > deadline:
                break
            again = set_up_controller_access(controller, self.request.cluster, lost)
            missed = {name: reason for name, reason in access.missed.items() if name not in lost} | again.missed
            access = replace(again, changed=access.changed or again.changed, missed=missed)
        return access

    def _session(self, node: Node, *more_keys: str, own_key: bool = False) -> Session:
        cluster = self.request.cluster
        target = Target(node.name, node.address or node.name, cluster.access.user, port_of(cluster, node), self.proxy)
        keys = (self.tools.key.public, *(key for key in more_keys if key))
        session = Session(target, self.tools, keys, node.name in self.request.accept_new_keys)
        if own_key:
            session.own_key = base_name(cluster)
            session.comment = f"{cluster.access.user or 'user'}@{node.name} (deepopsctl cluster {cluster.name})"
        return session

    def _outside(self, controller: Session) -> dict[str, NodeResult]:
        """Fetch the controller's key although --limit excludes it; no password is used for that."""
        if self.request.controller_key:
            result = controller.with_keys()
            if not (result and result.ok):
                name = controller.target.name
                self.warnings.append(
                    f"{name} is not ready and can't log in to these nodes yet: run `ssh setup` without --limit"
                )
        return {}

    def _jump(self) -> NodeResult | None:
        """Set up the jump hosts in order; the proxy command then goes through all of them."""
        result = None
        for number, hop in enumerate(filter(None, self.request.cluster.access.jump_host.split(","))):
            target = jump_target(hop, self.proxy)
            accept = target.name in self.request.accept_new_keys
            session = JumpSession(target, self.tools, (self.tools.key.public,), accept)
            result = self.round.try_all([session])[target.name]
            if not result.ok:
                return result
            control = self.tools.askpass.directory / f"jump{number}"
            auth = jump_login(str(self.tools.key.private))
            self.tools.client.share(target, auth, control)
            # one connection for all: sshd accepts ten new ones at a time (MaxStartups)
            shared = options({"ControlPath": quoted(control)})
            self.proxy = proxy_command([*shared, *self.tools.client.options(), *auth], target)
        return result

    def _find_clones(self) -> None:
        """Warn about nodes with identical host keys (copies of one image): one could impersonate the others."""
        holders: dict[str, list[str]] = {}
        for node in self.request.cluster.nodes:
            label = host_label(node.name, port_of(self.request.cluster, node))
            for key in self.tools.hostkeys.pins.keys(label):
                holders.setdefault(key.blob, []).append(node.name)
        for names in dict.fromkeys(tuple(names) for names in holders.values() if len(names) > 1):
            self.warnings.append(
                f"{', '.join(names)} have the same host key: the same host twice, or copies of one image "
                "(`rm /etc/ssh/ssh_host_* && ssh-keygen -A` on the copies, then --accept-new-keys)"
            )


def _trusted() -> tuple[KnownHosts, ...]:
    files = (Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts"))
    return tuple(KnownHosts(file) for file in files)


def _behind(node: Node, jump: NodeResult) -> NodeResult:
    status = Status.UNREACHABLE if jump.status is Status.UNREACHABLE else Status.NOT_TRIED
    return NodeResult(node.name, status, message=f"behind the jump host {jump.name}: {jump.message}", hint=jump.hint)


def _interrupted(request: SetupRequest, done: dict[str, NodeResult]) -> InterruptedRunError:
    from deepopsctl.text.node_sets import fold

    ready = [node.name for node in request.nodes if node.name in done and done[node.name].ok]
    left = [node.name for node in request.nodes if node.name not in ready]
    text = f"stopped: {len(ready)} of {amount(len(request.nodes), 'node')} are ready"
    return InterruptedRunError(
        text + (f", left: {fold(left)}" if left else ""), "run it again: it resumes where it stopped"
    )

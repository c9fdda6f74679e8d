"""`node replace`: new hardware behind a node name; its host key and hardware are read again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.editor import SpecFile, set_address
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.nodes.admit import admit
from deepopsctl.nodes.drain import DrainOptions, NodeDrain
from deepopsctl.nodes.host_keys import close_connections, compare, forget
from deepopsctl.nodes.remove import chosen
from deepopsctl.nodes.workflow import PATIENCE_S, Flow, Operator, Report, StoppedError, untouched_nodes
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.hardware import load_hardware, store_hardware
from deepopsctl.ssh.host_keys import NoAnswerError
from deepopsctl.text.node_sets import fold

# of what only a backup has: the queue, the accounting
_OTHER_WAY = (
    "the new machine gets what a backup has. If {node} still runs: `deepopsctl backup run`, then switch it off. "
    "A new address goes into cluster.yml. Then `deepopsctl ssh setup --accept-new-keys {node}`, and "
    "`deepopsctl restore`; where another controller runs, or without slurmctld and slurmdbd there, `deepopsctl deploy`"
)


@dataclass(frozen=True, slots=True)
class ReplaceRequest:
    """The options of `node replace`; `address` is '' if it does not change."""

    name: str
    address: str
    timeout_s: int
    hold_waiting: bool = False


def replace(directory: ClusterDir, request: ReplaceRequest, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    standby = _standby(cluster, request.name)
    (node, *more) = (standby,) if standby else chosen(cluster, request.name, _OTHER_WAY)
    if more:
        raise InputError.single("NAME", f"{request.name} are several nodes", "replace one node at a time")
    flow = Flow(directory, base, operator, Report("node replace", (node.name,)))
    names = [node.name] if Role.COMPUTE in node.roles else []
    node_drain = NodeDrain(flow, cluster, names, "replace", DrainOptions(node.name, request.timeout_s))
    replacement = _Replace(flow, request, cluster, node, node_drain)
    with flow.reporting():
        with flow.lock():
            replacement.drain()
        node_drain.wait()
        with flow.lock_when_free():
            replacement.finish()
    return flow.report


def _standby(cluster: Cluster, name: str) -> Node | None:
    """The named node, if all that it has of the cluster's is on the file system that the controllers share.

    The first controller is asked by every command, also by this one. Two slurmdbd have their database elsewhere.
    """
    if not cluster.slurm_state:
        return None
    needed = {Role.NFS_SERVER, Role.MONITORING} | ({Role.DBD} if len(cluster.with_role(Role.DBD)) == 1 else set())
    return next((node for node in cluster.controllers[1:] if node.name == name and not node.roles & needed), None)


@dataclass(slots=True)
class _Replace:
    flow: Flow
    request: ReplaceRequest
    before: Cluster
    node: Node
    node_drain: NodeDrain

    def drain(self) -> None:
        """Ask for confirmation of the new host, then drain the node."""
        slurm = self.flow.survey(self.before, slurm=bool(self.node_drain.names))
        if self._moves:
            # errors of the edit show before anything is changed
            set_address(SpecFile.open(self.flow.directory).text, self.node.name, self.request.address)
        self.node_drain.show_jobs(slurm)
        self._show_host_key(dataclasses.replace(self.node, address=self.request.address or self.node.address))
        self.flow.confirm(f"use this host as {self.node.name} of {self.before.name}?", self.before)
        self.node_drain.drain()

    def finish(self) -> None:
        """Set up the new host under the old name."""
        flow, name = self.flow, self.node.name
        self.node_drain.require_no_jobs()
        spec = SpecFile.open(flow.directory)
        cluster = spec.write(set_address(spec.text, name, self.request.address) if self._moves else spec.text)
        self._set_up_ssh(cluster, spec)
        self._deploy(cluster)
        if Role.CONTROLLER in self.node.roles:
            self._require_standby(cluster)
        flow.report.closing = f"{name} is replaced and in service"
        others = untouched_nodes(cluster, [self.node])
        if others and self._moves:
            flow.report.closing += f"; the next `deepopsctl deploy` updates its address in /etc/hosts of {fold(others)}"

    @property
    def _moves(self) -> bool:
        return bool(self.request.address) and self.request.address != self.node.address

    def _show_host_key(self, new: Node) -> None:
        """Show the host key at the address, so that a person can compare it with the host's console."""
        try:
            comparison = compare(self.flow.directory, self.before, new, PATIENCE_S)
        except NoAnswerError as error:
            raise StoppedError(
                f"{new.name} does not answer at {new.address or new.name}: {error.message}; nothing was changed",
                "is the new host on, with sshd running and that address?",
                ExitCode.UNREACHABLE,
            ) from error
        info = self.flow.operator.info
        if comparison is None:
            info(f"{new.name} is behind a jump host: the host key it shows is accepted")
        elif comparison.same:
            info(f"{new.name} shows the pinned host key ({comparison.shown}): the same host, or one with its keys")
        else:
            info(f"{new.name} at {new.address or new.name} shows another host key:")
            info(f"  pinned  {comparison.pinned}")
            info(f"  shown   {comparison.shown}")

    def _set_up_ssh(self, cluster: Cluster, spec: SpecFile) -> None:
        name = self.node.name
        known_hosts = self.flow.directory.known_hosts
        pins = known_hosts.read_text(encoding="utf-8")
        close_connections(self.flow.directory)
        # the old address goes, too
        forget(self.flow.directory, self.before, [name])
        try:
            node = next(node for node in cluster.nodes if node.name == name)
            result = self.flow.operator.set_up_ssh(cluster, (node,), frozenset({name}))
        except BaseException:
            spec.restore()
            write_atomic(known_hosts, pins)
            raise
        if result.ok:
            return
        spec.restore()
        write_atomic(known_hosts, pins)
        bad = next((node for node in result.nodes if not node.ok), None)
        raise StoppedError(
            f"{name} can't be logged in to: {bad.message if bad else 'no reason'}; "
            "cluster.yml and known_hosts were restored, the node stays drained",
            (bad.hint if bad else "") or "see `deepopsctl ssh setup`",
            result.exit_code if result.exit_code is not ExitCode.OK else ExitCode.FAILED,
        )

    def _deploy(self, cluster: Cluster) -> None:
        """Remove the stored hardware first, so that the deploy reads it again."""
        path = self.flow.directory.hardware
        stored = load_hardware(path)
        if stored.pop(self.node.name, None):
            store_hardware(path, stored)
        nodes = tuple(node for node in cluster.nodes if node.name == self.node.name)
        # the new hardware may have other GPUs than waiting jobs ask for
        admit(self.flow, cluster, nodes, deepops_hold_waiting=self.request.hold_waiting)

    def _require_standby(self, cluster: Cluster) -> None:
        """A controller that takes over when the first one is lost."""
        if not self.flow.survey(cluster).controllers.get(self.node.name):
            raise StoppedError(
                f"{self.node.name} is set up, but slurmctld does not answer there: it can't take over",
                "see `deepopsctl status`, and `journalctl -u slurmctld` there; then run the same command again",
            )

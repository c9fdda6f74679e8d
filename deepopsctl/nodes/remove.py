"""`node remove`: remove nodes from the cluster without losing jobs."""

from __future__ import annotations

from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.editor import SpecFile, remove_nodes
from deepopsctl.cluster.selection import select_nodes
from deepopsctl.errors import InputError
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.nodes.drain import DrainOptions, NodeDrain
from deepopsctl.nodes.host_keys import close_connections, forget
from deepopsctl.nodes.workflow import Flow, Operator, Report, require_success, untouched_nodes
from deepopsctl.run.request import RunRequest
from deepopsctl.text.node_sets import fold

# nodes with these roles can't be removed: they hold data and daemons of the whole cluster
IRREMOVABLE_ROLES = (Role.CONTROLLER, Role.DBD, Role.NFS_SERVER, Role.MONITORING)


def remove(directory: ClusterDir, options: DrainOptions, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; nothing is removed while jobs run on the nodes."""
    cluster = directory.cluster()
    nodes = chosen(cluster, options.names)
    flow = Flow(directory, base, operator, Report("node remove", tuple(node.name for node in nodes)))
    removal = _Remove(flow, options, cluster, nodes)
    with flow.reporting():
        with flow.lock():
            removal.drain()
        # without the lock: others may work on the cluster while jobs finish
        removal.node_drain.wait()
        with flow.lock_when_free():
            removal.finish()
    return flow.report


def chosen(
    cluster: Cluster, text: str, hint: str = "move that role to another node in cluster.yml first"
) -> tuple[Node, ...]:
    """The named nodes; refuses unknown ones and those that the cluster depends on, for which `hint` has another way."""
    nodes = select_nodes([text.partition("=")[0]], cluster, "NAMES")
    for node in nodes:
        roles = [role.value for role in IRREMOVABLE_ROLES if role in node.roles]
        if roles:
            message = f"{node.name} is {', '.join(roles)}: this command is for compute and login nodes"
            raise InputError.single("NAMES", message, hint.format(node=node.name))
    return nodes


@dataclass(slots=True)
class _Remove:
    flow: Flow
    options: DrainOptions
    cluster: Cluster
    nodes: tuple[Node, ...]

    @property
    def names(self) -> list[str]:
        """The nodes to remove."""
        return [node.name for node in self.nodes]

    @property
    def node_drain(self) -> NodeDrain:
        """The drain of the compute nodes among them."""
        compute = [node.name for node in self.nodes if Role.COMPUTE in node.roles]
        return NodeDrain(self.flow, self.cluster, compute, "remove", self.options)

    def drain(self) -> None:
        """Ask for confirmation, then drain the nodes."""
        leaving = self.node_drain.names
        slurm = self.flow.survey(self.cluster, slurm=bool(leaving), leaving=leaving)
        # errors of the edit show before anything is changed
        remove_nodes(SpecFile.open(self.flow.directory).text, self.names)
        self.node_drain.show_waiting(slurm)
        self.node_drain.show_jobs(slurm)
        self.flow.confirm(f"remove {fold(self.names)} from {self.cluster.name}?", self.cluster)
        self.node_drain.drain()

    def finish(self) -> None:
        """Remove the nodes, if still no job runs there."""
        flow, names = self.flow, self.names
        self.cluster = flow.directory.cluster()
        self.nodes = chosen(self.cluster, ",".join(names))
        spec = SpecFile.open(flow.directory)
        text = remove_nodes(spec.text, names)
        self.node_drain.require_no_jobs()
        if leaving := self.node_drain.names:
            # a drained node can still be asked for by new jobs, which wait
            self.node_drain.show_waiting(flow.survey(self.cluster, leaving=leaving))
        flow.operator.info(f"stop the cluster's services on {fold(names)}")
        self._retire(names)
        flow.operator.info(f"remove {fold(names)} from the configuration")
        self._forget(spec, text, names)
        flow.report.closing = f"{fold(names)} removed from the cluster"
        others = untouched_nodes(self.cluster, self.nodes)
        if others and any(node.address for node in self.nodes):
            flow.report.closing += (
                f"; /etc/hosts of {fold(others)} {'lists' if len(others) == 1 else 'list'} "
                f"{'it' if len(names) == 1 else 'them'} until the next `deepopsctl deploy`"
            )

    def _retire(self, names: list[str]) -> None:
        """Stop the services; a node that does not answer may be gone for good."""
        # a persistent connection to a dead node would hang for most of a minute
        close_connections(self.flow.directory)
        outcome = self.flow.run_playbooks(self.cluster, ("operate/nodes/decommission",), names, deepops_nodes=names)
        lost = outcome.summary.unreachable
        rest = [node for node in self.nodes if node.name not in lost]
        back = f"run the command again; `deepopsctl node resume {fold(names)}` cancels the removal"
        require_success(outcome, rest, f"{fold(names)} stays drained and in cluster.yml", back)
        if lost:
            self.flow.report.warnings.append(
                f"{fold(lost)} did not answer: slurmd and the munge key are still on it; erase it before reuse"
            )

    def _forget(self, spec: SpecFile, text: str, names: list[str]) -> None:
        """Update cluster.yml, inventory, hardware.yml, slurm.conf, hosts files of the dependent nodes, host keys."""
        hardware = self.flow.directory.hardware
        stored = hardware.read_text(encoding="utf-8") if hardware.exists() else ""
        after = spec.write(text)
        flow = self.flow
        try:
            outcome = flow.deploy(after, self.nodes, deepops_hold_waiting=self.options.hold_waiting)
            flow.require_service(
                outcome,
                after,
                (),
                f"cluster.yml was restored; {fold(names)} stays drained, its services are stopped",
                "fix it, then run the command again",
            )
        except BaseException:
            # Ctrl-C between two runs, too: the same command would not know the nodes any more
            spec.restore()
            if stored:
                write_atomic(hardware, stored)
            raise
        forget(self.flow.directory, self.cluster, names)
        reached = self.flow.operator.set_up_ssh(after, (), frozenset())
        self.flow.report.warnings += reached.warnings

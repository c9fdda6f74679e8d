"""`node add`: add nodes to the cluster without touching other compute nodes."""

from __future__ import annotations

from dataclasses import dataclass

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.editor import SpecFile, add_nodes
from deepopsctl.errors import ExitCode
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.nodes.admit import admit
from deepopsctl.nodes.new_nodes import AddRequest, describe, parse_hosts, resolve_new_nodes, split_known
from deepopsctl.nodes.workflow import Flow, Operator, Report, StoppedError, untouched_nodes
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.node_sets import fold


def add(directory: ClusterDir, request: AddRequest, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    hosts = parse_hosts(request.names)
    flow = Flow(directory, base, operator, Report("node add", tuple(name for name, _ in hosts)))
    with flow.reporting(), flow.lock():
        _Add(flow, request, hosts).add_all()
    return flow.report


@dataclass(slots=True)
class _Add:
    flow: Flow
    request: AddRequest
    hosts: tuple[tuple[str, str], ...]

    def add_all(self) -> None:
        flow = self.flow
        cluster = flow.directory.cluster()
        fresh, there = split_known(cluster, self.hosts)
        slurm = flow.survey(cluster, slurm=bool(there))
        waiting = self._unfinished(cluster, [name for name, _ in there], slurm) if there else []
        if not fresh and not waiting:
            return
        spec = SpecFile.open(flow.directory)
        if fresh:
            new = resolve_new_nodes(cluster, self.request, fresh)
            flow.operator.info(f"{fold(name for name, _ in fresh)}, {describe(new)}")
            cluster = spec.write(add_nodes(spec.text, new))
        names = {*waiting, *(name for name, _ in fresh)}
        nodes = tuple(node for node in cluster.nodes if node.name in names)
        self._set_up_ssh(cluster, nodes, spec)
        admit(flow, cluster, nodes)
        flow.report.closing = f"{fold(names)} {'is' if len(names) == 1 else 'are'} in service"
        others = untouched_nodes(cluster, nodes)
        if others and any(node.address for node in nodes):
            flow.report.closing += f"; the next `deepopsctl deploy` adds the name to /etc/hosts of {fold(others)}"

    def _unfinished(self, cluster: Cluster, names: list[str], slurm: SlurmState) -> list[str]:
        """The nodes in the cluster that an earlier `node add` did not put into service."""
        compute = {node.name for node in cluster.compute}
        # whether a node without the compute role is ready, only a deploy finds out
        unfinished = [name for name in names if name not in compute or _is_on_its_way(name, slurm)]
        fine = [slurm.nodes[name] for name in names if name not in unfinished]
        sick = [node for node in fine if node.is_faulty]
        if sick:
            raise StoppedError(
                f"{sick[0].name} is in the cluster already, and Slurm has it as {sick[0].word}: "
                f"{sick[0].reason or 'no reason'}; nothing was changed",
                f"find the cause with `deepopsctl doctor --limit {sick[0].name}`; `deepopsctl deploy` repairs the node",
            )
        if fine:
            words = ", ".join(f"{node.name} ({node.word})" for node in fine)
            verb = "is" if len(fine) == 1 else "are"
            self.flow.report.closing = f"{words} {verb} in the cluster already: nothing to do"
        return unfinished

    def _set_up_ssh(self, cluster: Cluster, nodes: tuple[Node, ...], spec: SpecFile) -> None:
        """Log in to all of them, or restore cluster.yml and known_hosts."""
        known_hosts = self.flow.directory.known_hosts
        pins = known_hosts.read_text(encoding="utf-8") if known_hosts.exists() else ""
        result = None
        try:
            result = self.flow.operator.set_up_ssh(cluster, nodes, frozenset())
        finally:
            if result is None or not result.ok:
                was = "cluster.yml was restored" if spec.restore() else "nothing was changed"
                write_atomic(known_hosts, pins)
        if result.ok:
            return
        bad = [node for node in result.nodes if not node.ok]
        raise StoppedError(
            f"{fold(node.name for node in bad)} can't be logged in to: {bad[0].message}; {was}" if bad else was,
            (bad[0].hint if bad else "") or "see `deepopsctl ssh setup`",
            result.exit_code if result.exit_code is not ExitCode.OK else ExitCode.FAILED,
        )


def _is_on_its_way(name: str, slurm: SlurmState) -> bool:
    """Whether an earlier run left it unknown to Slurm, reserved or drained; nodes that others drained don't count."""
    node = slurm.nodes.get(name)
    return node is None or name in slurm.reserved or node.is_drained_by_node_command

"""The cluster's status from a finished query of the nodes: exit code and JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deepopsctl.errors import DeepOpsError, ExitCode, InterruptedRunError
from deepopsctl.model.cluster import Cluster
from deepopsctl.run.outcome import SCHEMA, Failure, RunOutcome
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.slurm.state import SlurmState, state_in
from deepopsctl.status.components import Deploy, may_have, overall_deploy
from deepopsctl.status.findings import Finding, Severity, findings
from deepopsctl.status.last_runs import LastRuns
from deepopsctl.status.nodes import Answer, NodeStatus, with_answer
from deepopsctl.text.node_sets import fold

PLAYBOOK = "operate/status"
COMMAND = "status"
# enough to tell two deploys apart
DIGEST_DIGITS = 12
# Ansible's message for a task that ran into its `timeout`
TIMED_OUT = "Timed out after"
VERSIONS = ("slurm", "slurmctld", "os", "kernel", "driver", "deploy")


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Current state of the cluster."""

    cluster: str
    nodes: tuple[NodeStatus, ...]
    slurm: SlurmState
    last: LastRuns
    findings: tuple[Finding, ...]
    # of cluster.yml; None where it does not list them
    listed: tuple[str, ...] | None = None

    @property
    def exit_code(self) -> ExitCode:
        """1 for a problem, 4 if the only problem is that nodes did not answer."""
        severities = {finding.severity for finding in self.findings}
        if Severity.PROBLEM in severities:
            return ExitCode.FAILED
        return ExitCode.UNREACHABLE if Severity.SILENT in severities else ExitCode.OK

    @property
    def versions(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Versions in use: name -> version -> nodes, the most common first."""
        nodes_by_version: dict[str, dict[str, list[str]]] = {name: {} for name in VERSIONS}
        for node in self.nodes:
            digests = {"deploy": "+".join(digest[:DIGEST_DIGITS] for digest in node.digests)}
            for name, version in {**node.versions, **digests}.items():
                if version:
                    nodes_by_version.setdefault(name, {}).setdefault(version, []).append(node.name)
        if running := self.slurm.versions.get("slurmctld"):
            nodes_by_version["slurmctld"][running] = [node.name for node in self.nodes if "controller" in node.roles][
                :1
            ]
        return {
            name: {version: tuple(names) for version, names in sorted(sets.items(), key=lambda item: -len(item[1]))}
            for name, sets in nodes_by_version.items()
            if sets
        }

    @property
    def components(self) -> dict[str, dict[Deploy, tuple[str, ...]]]:
        """Each component's nodes by deploy state; nodes that did not answer are unknown."""
        nodes_by_state: dict[str, dict[Deploy, list[str]]] = {}
        # the nodes with the most components determine the order
        for node in sorted(self.nodes, key=lambda node: -len(node.components)):
            for component in node.components:
                nodes_by_state.setdefault(component.name, {}).setdefault(component.deploy, []).append(node.name)
        for node in self.nodes:
            for name, sets in nodes_by_state.items():
                if node.answer is not Answer.OK and may_have(node.node, name):
                    sets.setdefault(Deploy.UNKNOWN, []).append(node.name)
        return {
            name: {deploy: tuple(sets[deploy]) for deploy in Deploy if deploy in sets}
            for name, sets in nodes_by_state.items()
            # components that are neither listed nor deployed anywhere are omitted
            if self.listed is None or name in self.listed or not sets.keys() <= {Deploy.NEVER, Deploy.UNKNOWN}
        }

    def document(self) -> dict[str, object]:
        """The JSON object (DESIGN, section 5)."""
        running = [job for job in self.slurm.jobs if job.is_on_nodes]
        return {
            "schema": SCHEMA,
            "command": COMMAND,
            "ok": self.exit_code is ExitCode.OK,
            "cluster": self.cluster,
            "slurm": {
                "installed": self.slurm.installed,
                "up": self.slurm.controller_up,
                "error": self.slurm.error,
                "jobs": {"running": len(running), "pending": len(self.slurm.pending)},
            },
            "nodes": [node.as_object() for node in self.nodes],
            "listed_components": None if self.listed is None else list(self.listed),
            "components": {
                name: {str(deploy): fold(names) for deploy, names in sets.items()}
                for name, sets in self.components.items()
            },
            "versions": {
                item: {version: fold(names) for version, names in sets.items()} for item, sets in self.versions.items()
            },
            **self.last.as_object(),
            "findings": [finding.as_object() for finding in self.findings],
        }


def examine(
    outcome: RunOutcome, cluster: Cluster, hardware: Mapping[str, NodeHardware], last: LastRuns
) -> ClusterStatus:
    """The status from a finished query; raises errors that stopped the query itself."""
    if outcome.stopped:
        raise InterruptedRunError("stopped before all nodes had answered")
    summary = outcome.summary
    for failure in summary.failures:
        if not failure.host:
            raise DeepOpsError(failure.message, failure.hint)
    slurm = state_in(result.data for result in summary.results)
    answers = {
        result.host: report for result in summary.results if isinstance(report := result.data.get("node"), Mapping)
    }
    failed = {failure.host: failure for failure in summary.failures}
    jobs = slurm.jobs_by_node
    nodes = []
    for node in cluster.nodes:
        name = node.name
        status = NodeStatus(node, slurm=slurm.nodes.get(name), jobs=jobs.get(name, ()), hardware=hardware.get(name))
        nodes.append(with_answer(status, answers[name]) if name in answers else _silent(status, failed.get(name)))
    deployed = frozenset(part.name for node in nodes for part in node.components if part.deploy is not Deploy.NEVER)
    nodes = [
        replace(node, deploy=overall_deploy(node.components, deployed)) if node.answer is Answer.OK else node
        for node in nodes
    ]
    all_findings = findings(nodes, slurm, deployed, cluster.components)
    return ClusterStatus(cluster.name, tuple(nodes), slurm, last, all_findings, cluster.components)


def _silent(status: NodeStatus, failure: Failure | None) -> NodeStatus:
    """A node that did not answer, or whose answer was unusable; a hanging one exceeds the task's time limit."""
    if failure is None:
        return replace(status, message="was not queried")
    # the first line is the reason; without the node's address, so that nodes with the same reason share a row
    text = failure.anywhere.partition("\n")[0] if failure.unreachable else " ".join(failure.message.split())
    hangs = TIMED_OUT in text
    answer = Answer.NONE if failure.unreachable or hangs else Answer.FAILED
    if hangs:
        hint = "it is overloaded or hangs; --node-timeout gives it more time"
        return replace(status, answer=answer, message="no answer in time", hint=hint)
    return replace(status, answer=answer, message=text, hint=failure.hint)

"""The cluster's status from one query of all nodes and the run directories: exit code and JSON object."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from deepopsctl.checks.check import Totals, parse_check, totals
from deepopsctl.errors import DeepOpsError, ExitCode, InterruptedRunError
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.json_objects import SCHEMA, LastRunParts, StatusObject
from deepopsctl.run.desired_state import MEMORY as DESIRED, changed_settings
from deepopsctl.run.events import Event
from deepopsctl.run.history import PastRun, past_run
from deepopsctl.run.late import TIMED_OUT, busy_share, late_nodes, merged, more_time
from deepopsctl.run.outcome import Failure, RunOutcome, Verdict
from deepopsctl.run.questions import STATUS
from deepopsctl.run.request import USUAL_SSH, RunRequest
from deepopsctl.run.workspace import RunDir, Workspace
from deepopsctl.slurm.hardware import NodeHardware, load_hardware
from deepopsctl.slurm.state import SlurmState, state_in
from deepopsctl.status.findings import Finding, Severity, findings
from deepopsctl.status.nodes import Answer, Deploy, LastBackup, NodeStatus, may_have, overall_deploy, with_answer
from deepopsctl.text.answers import mapping, mappings
from deepopsctl.text.node_sets import fold
from deepopsctl.validation.result import CHECKS_FILE

COMMAND = "status"
VERSIONS = ("slurm", "slurmctld", "os", "kernel", "driver")


def status_request(base: RunRequest, node_timeout: int) -> RunRequest:
    """The query of all nodes; a node without an answer for `node_timeout` seconds counts as not answering."""
    return replace(
        base,
        playbook=STATUS,
        command=COMMAND,
        extra_vars={"deepops_node_timeout": node_timeout},
        # open connections are reused; a new one gets half of the time
        ssh={**USUAL_SSH, "ConnectTimeout": str(max(node_timeout // 2, 1))},
    )


def query_status(base: RunRequest, node_timeout: int, watch: Callable[[Event], None] | None = None) -> ClusterStatus:
    """The cluster's status; too short for a progress view, but `watch` may follow it.

    A node without an answer for `node_timeout` seconds counts as not answering; one that took the connection is asked
    once more and has three times as long, or more if the control machine is busy.
    """
    from deepopsctl.run.runner import run_readonly

    directory = base.directory
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    outcome = run_readonly(status_request(base, node_timeout), watch)
    if late := late_nodes(outcome.summary):
        again = replace(status_request(base, node_timeout * more_time(busy_share())), limit=",".join(late))
        outcome = merged(outcome, run_readonly(again, watch))
    changed = changed_settings(directory.path, directory.runs / DESIRED)
    return examine(outcome, cluster, load_hardware(directory.hardware), last_runs(Workspace(directory.runs)), changed)


@dataclass(frozen=True, slots=True)
class LastRuns:
    """None if there was none, or if it is no longer stored."""

    run: PastRun | None = None
    deploy: PastRun | None = None
    validation: PastRun | None = None
    checks: Totals | None = None
    upgrade: PastRun | None = None
    restore: PastRun | None = None

    @property
    def unsettled_deploy(self) -> PastRun | None:
        """The last deploy, unless a restore has ended well since: it deploys everything, too."""
        deploy, restore = self.deploy, self.restore
        settled = deploy and restore and restore.state == Verdict.OK and restore.run_dir.id > deploy.run_dir.id
        return None if settled else deploy

    def as_object(self) -> LastRunParts:
        """Their part of `status --json`; an empty object for a missing run."""
        return {
            "last_run": {**self.run.as_object()} if self.run else {},
            "last_deploy": {**self.deploy.as_object()} if self.deploy else {},
            "last_upgrade": {**self.upgrade.as_object()} if self.upgrade else {},
            "last_restore": {**self.restore.as_object()} if self.restore else {},
            "last_validation": self._validation() if self.validation else {},
        }

    def _validation(self) -> dict[str, object]:
        entry: dict[str, object] = {**self.validation.as_object()} if self.validation else {}
        if self.checks:
            entry["checks"] = {
                "passed": self.checks.passed,
                "warned": self.checks.warned,
                "failed": self.checks.failed,
                "skipped": self.checks.skipped,
            }
        return entry


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
            for name, version in node.versions.items():
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

    @property
    def backups(self) -> dict[str, LastBackup]:
        """The last backup of each node that makes some."""
        return {node.name: node.backup for node in self.nodes if node.backup}

    def document(self) -> StatusObject:
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
                "controllers": dict(self.slurm.controllers),
                "in_control": self.slurm.in_control,
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
            "last_backup": {name: backup.as_object() for name, backup in self.backups.items()},
            "last_backup_of_monitoring": {
                node.name: node.backup_of_monitoring.as_object() for node in self.nodes if node.backup_of_monitoring
            },
            "findings": [finding.as_object() for finding in self.findings],
        }


def examine(
    outcome: RunOutcome,
    cluster: Cluster,
    hardware: Mapping[str, NodeHardware],
    last: LastRuns,
    changed: Collection[str] = (),
) -> ClusterStatus:
    """The status from a finished query; raises errors that stopped the query itself.

    `changed` are the settings that are others than at the last deploy.
    """
    if outcome.stopped:
        raise InterruptedRunError("stopped before all nodes had answered")
    summary = outcome.summary
    for failure in summary.failures:
        if not failure.host:
            raise DeepOpsError(failure.message, failure.hint)
    slurm = state_in(result.data for result in summary.results)
    answers = {result.host: report for result in summary.results if (report := mapping(result.data.get("node")))}
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
    all_findings = findings(
        nodes, slurm, deployed, cluster.components, datetime.now(UTC), last.unsettled_deploy, changed
    )
    return ClusterStatus(cluster.name, tuple(nodes), slurm, last, all_findings, cluster.components)


def last_runs(workspace: Workspace) -> LastRuns:
    """Reads the newest directories first, and no more than needed."""
    run_dirs = workspace.newest_first()
    words = ("deploy", "validate", "upgrade", "restore")
    last = {word: past_run(run_dir) for word, run_dir in _newest(run_dirs, words)}
    validation = last.get("validate")
    return LastRuns(
        run=past_run(run_dirs[0]) if run_dirs else None,
        deploy=last.get("deploy"),
        validation=validation,
        checks=_checks(validation.run_dir) if validation else None,
        upgrade=last.get("upgrade"),
        restore=last.get("restore"),
    )


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
        if busy_share() > 2:
            hint = "this control machine is busy and may be the cause: ask again later, or set a longer --node-timeout"
        return replace(status, answer=answer, message="no answer in time", hint=hint)
    return replace(status, answer=answer, message=text, hint=failure.hint)


def _newest(run_dirs: Iterable[RunDir], words: Iterable[str]) -> Iterator[tuple[str, RunDir]]:
    """The newest run of each command by its first word (`upgrade` for all upgrades), without those in check mode."""
    wanted = set(words)
    for run_dir in run_dirs:
        request = run_dir.read(run_dir.request)
        word = re.split("[ -]", str(request.get("command")))[0]
        if word in wanted and not request.get("check"):
            wanted.remove(word)
            yield word, run_dir
        if not wanted:
            return


def _checks(run_dir: RunDir) -> Totals | None:
    listed = run_dir.read(run_dir.path / CHECKS_FILE).get("checks")
    return totals(map(parse_check, mappings(listed))) if isinstance(listed, list) else None

"""Commands of several runs: the runs, the lock, and the report that says why one stopped early."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from deepopsctl.checks.check import Check
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.content import components
from deepopsctl.errors import DeepOpsError, ExitCode
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.model.json_objects import SCHEMA, WorkflowObject
from deepopsctl.nodes.wait_for_jobs import slurm_now
from deepopsctl.report.model import entries_of
from deepopsctl.run.claim import PLAYBOOK as CLAIM, OutdatedError, died_here, parse_answer
from deepopsctl.run.events import Totals
from deepopsctl.run.lock import ClusterBusyError, cluster_lock
from deepopsctl.run.outcome import COUNTS, FAULT, Failure, RunOutcome, Verdict, chosen
from deepopsctl.run.questions import SLURM_INFO
from deepopsctl.run.request import RunRequest
from deepopsctl.run.workspace import Workspace
from deepopsctl.slurm.state import SlurmState, state_in
from deepopsctl.ssh.results import SetupResult
from deepopsctl.text.answers import texts
from deepopsctl.text.node_sets import fold

SLURM, NODE_STATE = "slurm", "operate/nodes/slurm-node-state"
# why an unreachable node failed
SILENT = "does not answer"
# other nodes reach a new host at an old address only after their neighbour tables have expired
PATIENCE_S = 60
# between two looks at whether another run has ended
PAUSE_S = 5.0
# nodes with these roles are deployed whenever nodes are added or removed; other compute nodes are not touched
DEPENDENT_ROLES = (Role.CONTROLLER, Role.DBD, Role.LOGIN, Role.MONITORING, Role.NFS_SERVER)


class Operator(Protocol):
    """The console: messages, questions and the display of runs."""

    def info(self, text: str) -> None:
        """Print a line."""

    def confirm(self, question: str, cluster: Cluster) -> None:
        """Continue only if the person agrees, else raise. A protected cluster's name has to be typed."""

    def perform(self, request: RunRequest, hosts: tuple[str, ...]) -> RunOutcome:
        """Run playbooks and show their progress."""

    def set_up_ssh(self, cluster: Cluster, nodes: tuple[Node, ...], accept: frozenset[str]) -> SetupResult:
        """Set up keys, host keys and logins of nodes; without nodes, only the controller's list of them."""


class StoppedError(DeepOpsError):
    """The command stopped early; the message says what is unchanged, the hint how to continue."""


@dataclass(slots=True)
class Report:
    """The result of a command that consists of several runs."""

    command: str
    nodes: tuple[str, ...]
    outcomes: list[RunOutcome] = field(default_factory=list)
    checks: tuple[Check, ...] = ()
    warnings: list[str] = field(default_factory=list)
    closing: str = ""
    stopped: StoppedError | None = None
    began: float = field(default_factory=time.monotonic)
    # time spent on questions and on waiting for jobs
    idle_s: float = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds of work so far, without idle time."""
        return round(time.monotonic() - self.began - self.idle_s, 2)

    @property
    def exit_code(self) -> ExitCode:
        """Why it stopped; else 4 if a dependent node did not answer (a removed node may be dead)."""
        if self.stopped:
            return self.stopped.exit_code
        lost = {host for outcome in self.outcomes for host in outcome.summary.unreachable}
        failed = any(outcome.verdict not in (Verdict.OK, Verdict.UNREACHABLE) for outcome in self.outcomes)
        return ExitCode.FAILED if failed else ExitCode.UNREACHABLE if lost - {*self.nodes} else ExitCode.OK

    @property
    def hosts(self) -> dict[str, Totals]:
        """Ansible's counts of all runs together: a node that is not here was not visited."""
        totals_by_host: dict[str, Totals] = {}
        for outcome in self.outcomes:
            for host, totals in outcome.summary.hosts.items():
                before = totals_by_host.get(host, Totals())
                sums = {name: getattr(before, name) + getattr(totals, name) for name in COUNTS}
                totals_by_host[host] = replace(totals, **sums)
        return totals_by_host

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Everything that failed, in order."""
        return tuple(failure for outcome in self.outcomes for failure in outcome.summary.failures)

    def as_object(self) -> WorkflowObject:
        """The JSON object."""
        slowest = [entry for outcome in self.outcomes for entry in outcome.summary.slowest]
        sentences = [sentence for outcome in self.outcomes for sentence in outcome.summary.warnings]
        document: WorkflowObject = {
            "schema": SCHEMA,
            "command": self.command,
            "ok": self.exit_code is ExitCode.OK,
            "nodes": list(self.nodes),
            "run": self.outcomes[0].run_id if self.outcomes else "",
            "runs": [outcome.run_id for outcome in self.outcomes],
            "elapsed_s": self.elapsed_s,
            "hosts": {host: chosen(totals, COUNTS) for host, totals in self.hosts.items()},
            "failures": [chosen(failure, FAULT) for failure in self.failures],
            "slowest": [
                {"task": task, "elapsed_s": elapsed} for task, elapsed in sorted(slowest, key=lambda e: -e[1])[:5]
            ],
            "warnings": [*dict.fromkeys([*sentences, *self.warnings])],
        }
        if self.checks:
            document["checks"] = entries_of(self.checks)
        if self.stopped:
            document["stopped"] = {"message": self.stopped.message, "hint": self.stopped.hint}
        return document


@dataclass(slots=True)
class Flow:
    """One running command: runs playbooks on a few nodes and collects the outcomes."""

    directory: ClusterDir
    base: RunRequest
    operator: Operator
    report: Report
    # components that are deployed: only these are installed on new nodes
    deployed: tuple[str, ...] = (SLURM,)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """The frame of a command: where its steps stop early, the report says why."""
        try:
            yield
        except StoppedError as stop:
            self.report.stopped = stop

    @property
    def verb(self) -> str:
        """What is done to nodes, as drain reasons have it after `node `: add, reboot, upgrade os."""
        return self.report.command.removeprefix("node ")

    def lock(self) -> AbstractContextManager[None]:
        """The cluster's lock, for this command."""
        return cluster_lock(self.directory.runs, f"deepopsctl {self.report.command}")

    def idle(self, wait: Callable[[], None]) -> None:
        """Call `wait` without counting its time."""
        before = time.monotonic()
        try:
            wait()
        finally:
            self.report.idle_s += time.monotonic() - before

    @contextmanager
    def lock_when_free(self) -> Iterator[None]:
        """The cluster's lock, for what comes after a wait: it waits for a run that has it by now."""
        with ExitStack() as stack:
            shown = ""
            while True:
                try:
                    stack.enter_context(self.lock())
                    break
                except ClusterBusyError as busy:
                    if busy.message != shown:
                        self.operator.info(f"{busy.message}; waiting for it to finish")
                        shown = busy.message
                self.idle(partial(time.sleep, PAUSE_S))
            yield

    def confirm(self, question: str, cluster: Cluster) -> None:
        """Ask the operator."""
        self.idle(lambda: self.operator.confirm(question, cluster))

    def run_playbooks(
        self, cluster: Cluster, playbooks: tuple[str, ...], names: Iterable[str], **extra: object
    ) -> RunOutcome:
        """Playbooks on these nodes, in the order of cluster.yml, with variables."""
        wanted = frozenset(names)
        hosts = tuple(node.name for node in cluster.nodes if node.name in wanted)
        request = replace(self.base, playbook=playbooks[0], more=playbooks[1:], limit=",".join(hosts), extra_vars=extra)
        try:
            outcome = self.operator.perform(request, hosts)
        except (ClusterBusyError, OutdatedError) as refusal:
            raise StoppedError(refusal.message, refusal.hint) from refusal
        self.report.outcomes.append(outcome)
        return outcome

    def deploy(self, cluster: Cluster, changed: Iterable[Node], *before: str, **extra: object) -> RunOutcome:
        """Run the deployed components where nodes that join, leave or are replaced have an effect.

        Of the other nodes those that can't be reached are tolerated.
        """
        wanted = _affected(cluster, tuple(changed))
        return self.run_playbooks(cluster, (*before, *self.deployed), wanted, **extra)

    def require_service(
        self, outcome: RunOutcome, cluster: Cluster, nodes: Iterable[Node], stands: str, hint: str
    ) -> None:
        """Stop unless these nodes and the controller can run jobs; failures of other components are tolerated."""
        known = components(self.base.content)
        on_top = frozenset(known[known.index(SLURM) + 1 :])
        require_success(outcome, (*nodes, *cluster.controllers[:1]), stands, hint, on_top)

    def survey(self, cluster: Cluster, *, slurm: bool = True, leaving: Iterable[str] = ()) -> SlurmState:
        """Ask the first controller what is deployed, and for the state of Slurm; leaves no run directory.

        The state has the waiting jobs that need the nodes which are `leaving`.

        Stops if another run works on the cluster, a clone is newer, or slurmctld does not answer.
        """
        from deepopsctl.run.runner import ask

        first, more = cluster.controllers[0], (SLURM_INFO,) if slurm else ()
        variables = {"deepops_claim_state": "shown", "deepops_leaving_nodes": sorted(leaving)}
        request = replace(self.base, playbook=CLAIM, more=more, limit=first.name, extra_vars=variables)
        outcome = ask(request)
        error_text = "; ".join(failure.message for failure in outcome.summary.failures) or "no answer"
        require_success(outcome, (first,), f"{error_text}; nothing was changed", "see `deepopsctl status`")
        answer = next(filter(None, (parse_answer(result.data) for result in outcome.summary.results)), None)
        if answer and answer.refused and not died_here(answer.holder):
            raise StoppedError(f"{answer.message}; nothing was changed", answer.hint)
        there = {SLURM, *(answer.components if answer else ()), *deployed_from_here(Workspace(self.directory.runs))}
        self.deployed = tuple(name for name in components(self.base.content) if name in there)
        state = state_of(outcome)
        if slurm and not state.controller_up:
            message = f"slurmctld on {first.name} does not answer: {state.error}; nothing was changed"
            raise StoppedError(message, "see `deepopsctl status`")
        return state

    def slurm_now(self) -> SlurmState:
        """The state of Slurm as a wait queries it."""
        return slurm_now(self.base)

    def set_node_state(
        self,
        cluster: Cluster,
        state: str,
        names: Iterable[str],
        stands: str,
        hint: str,
        reason: str = "",
        **extra: object,
    ) -> RunOutcome:
        """Set the nodes to a state of slurm_node_state, on the primary controller; stops where that failed."""
        first = cluster.controllers[:1]
        variables = {"deepops_node_state": state, "deepops_nodes": sorted(names), **extra}
        variables |= {"deepops_drain_reason": encode_reason(reason)} if reason else {}
        outcome = self.run_playbooks(cluster, (NODE_STATE,), [node.name for node in first], **variables)
        require_success(outcome, first, stands, hint)
        return outcome


def encode_reason(text: str) -> str:
    """A drain reason as the playbook takes it: Ansible would treat braces as a template."""
    return b64encode(text.encode()).decode()


def state_of(outcome: RunOutcome) -> SlurmState:
    """The state of Slurm that a run returned."""
    return state_in(result.data for result in reversed(outcome.summary.results))


def dependent_nodes(cluster: Cluster) -> tuple[Node, ...]:
    """The nodes whose configuration depends on which nodes there are."""
    wanted = {node.name for role in DEPENDENT_ROLES for node in cluster.with_role(role)}
    return tuple(node for node in cluster.nodes if node.name in wanted)


def untouched_nodes(cluster: Cluster, changed: Iterable[Node]) -> tuple[str, ...]:
    """The nodes on which no task runs."""
    busy = _affected(cluster, tuple(changed))
    return tuple(node.name for node in cluster.nodes if node.name not in busy)


def _affected(cluster: Cluster, changed: tuple[Node, ...]) -> frozenset[str]:
    """These, and the dependent nodes; all where users log in by one of them: each node lets them in by its host key."""
    login = Role.LOGIN if any(Role.LOGIN in node.roles for node in (*cluster.nodes, *changed)) else Role.CONTROLLER
    everywhere = any(login in node.roles for node in changed)
    others = cluster.nodes if everywhere else dependent_nodes(cluster)
    return frozenset(node.name for node in (*changed, *others))


def deployed_from_here(workspace: Workspace) -> frozenset[str]:
    """Components that earlier runs of this cluster directory deployed successfully."""
    names: set[str] = set()
    for run_dir in workspace.newest_first():
        request = run_dir.read(run_dir.request)
        if not request.get("check") and run_dir.read(run_dir.summary).get("ok"):
            names.update(texts(request.get("playbooks")))
    return frozenset(names)


def failed_nodes(outcome: RunOutcome, names: Iterable[str], stands: str, hint: str) -> dict[str, str]:
    """{node: why} of those on which the run failed; StoppedError where the run itself was stopped."""
    if outcome.stopped or any(not failure.host for failure in outcome.summary.failures):
        require_success(outcome, (), stands, hint)
    reasons = {failure.host: failure.message for failure in outcome.summary.failures}
    reasons |= dict.fromkeys(outcome.summary.unreachable, SILENT)
    return {name: reasons[name] for name in names if name in reasons}


def require_success(
    outcome: RunOutcome, nodes: Iterable[Node], stands: str, hint: str, apart: Collection[str] = frozenset()
) -> None:
    """Stop unless the run succeeded on these nodes; failures of other nodes and of components `apart` are tolerated."""
    if outcome.stopped:
        raise StoppedError(f"stopped: {stands}", hint, outcome.exit_code)
    if any(not failure.host for failure in outcome.summary.failures):
        raise StoppedError(f"Ansible stopped with an error: {stands}", hint, outcome.exit_code)
    lost = frozenset(outcome.summary.unreachable)
    broken = {failure.host for failure in outcome.summary.failures if failure.component not in apart} - lost
    bad = [node.name for node in nodes if node.name in lost or node.name in broken]
    if bad:
        code = ExitCode.UNREACHABLE if lost.issuperset(bad) else ExitCode.FAILED
        word = "did not answer" if code is ExitCode.UNREACHABLE else "failed"
        raise StoppedError(f"{fold(bad)} {word}: {stands}", hint, code)

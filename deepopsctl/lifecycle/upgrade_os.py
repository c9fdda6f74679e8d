"""`upgrade os`: the packages of all nodes, where jobs are disturbed least.

Compute nodes are upgraded when they are empty, and rebooted by Slurm where that is needed; then login nodes and
servers, one after the other, without a reboot. Slurm's packages, the driver's and the database server's are left to
their own commands, held ones stay. Every step can be repeated: the same command continues.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.selection import select_nodes
from deepopsctl.errors import ExitCode
from deepopsctl.gpus.driver import PACKAGE_NAMES
from deepopsctl.lifecycle.os_plan import (
    COMMAND,
    OsFacts,
    OsPlan,
    is_drained_for_it,
    kernel_warnings,
    make_plan,
    parse_facts,
    pending_sentences,
)
from deepopsctl.lifecycle.pace import Pace
from deepopsctl.lifecycle.rolling import Rolling, WorkResult
from deepopsctl.model.cluster import Cluster, Node
from deepopsctl.node_programs.operations.slurm_upgrade.query import PATTERNS
from deepopsctl.nodes.workflow import Flow, Operator, Report, StoppedError, encode_reason, failed_nodes, state_of
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.text.answers import mapping
from deepopsctl.text.node_sets import fold

QUERY, UPGRADE = "operate/upgrade/os-query", "operate/upgrade/os-upgrade"
# what other commands upgrade, and a database server that slurmdbd depends on
LEFT = (*PATTERNS, *PACKAGE_NAMES.split())
LEFT_DATABASE = ("mariadb-*", "libmariadb*", "mysql-*", "galera-*")


@dataclass(frozen=True, slots=True)
class OsOptions:
    """The options of `upgrade os`: `limit` are node sets, all nodes without any."""

    limit: str = ""
    pace: Pace = field(default_factory=Pace)

    @property
    def again(self) -> str:
        """The command that continues."""
        words = [COMMAND, *(["--limit", shlex.quote(self.limit)] if self.limit else [])]
        return " ".join(words)


def upgrade_os(directory: ClusterDir, options: OsOptions, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    nodes = _selected(cluster, options)
    flow = Flow(directory, base, operator, Report(COMMAND, tuple(node.name for node in nodes)))
    with flow.reporting():
        _Upgrade(flow, cluster, nodes, options).upgrade_all()
    return flow.report


def plan_os(directory: ClusterDir, options: OsOptions, base: RunRequest) -> OsPlan:
    """What `upgrade os` would do; nothing but apt's package lists is changed."""
    cluster = directory.cluster()
    return _query(cluster, _selected(cluster, options), base)


def _selected(cluster: Cluster, options: OsOptions) -> tuple[Node, ...]:
    return select_nodes([options.limit], cluster, "--limit") if options.limit else cluster.nodes


def _variables() -> dict[str, object]:
    return {"deepops_os_leave": list(LEFT), "deepops_os_leave_database": list(LEFT_DATABASE)}


def _query(cluster: Cluster, nodes: Sequence[Node], base: RunRequest) -> OsPlan:
    from deepopsctl.run.runner import ask

    first, names = cluster.controllers[0].name, [node.name for node in nodes]
    variables = {**_variables(), "deepops_os_nodes": names}
    limit = ",".join(dict.fromkeys([*names, first]))
    outcome = ask(replace(base, playbook=QUERY, more=(), limit=limit, extra_vars=variables))
    stands = "nothing was changed"
    failures = failed_nodes(outcome, dict.fromkeys([*names, first]), stands, "see `deepopsctl status`")
    slurm = state_of(outcome)
    if not slurm.controller_up:
        why = failures.get(first) or slurm.error or "no answer"
        code = ExitCode.UNREACHABLE if first in outcome.summary.unreachable else ExitCode.FAILED
        raise StoppedError(f"slurmctld on {first} does not answer: {why}; {stands}", "see `deepopsctl status`", code)
    return make_plan(nodes, facts_in(outcome), failures, slurm)


def facts_in(outcome: RunOutcome) -> dict[str, OsFacts]:
    """The nodes' answers in a run."""
    answers = ((result.host, mapping(result.data.get("os"))) for result in outcome.summary.results)
    return {host: parse_facts(answer) for host, answer in answers if answer}


@dataclass(slots=True)
class _Upgrade:
    flow: Flow
    cluster: Cluster
    nodes: tuple[Node, ...]
    options: OsOptions
    facts: dict[str, OsFacts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def upgrade_all(self) -> None:
        """Compute nodes, then the others."""
        self.flow.survey(self.cluster, slurm=False)
        plan = _query(self.cluster, self.nodes, self.flow.base)
        rolling = Rolling(self.flow, self.cluster, self.options.pace, self._work, again=self.options.again)
        rolling.leave_out({**plan.compute.left_alone, **plan.silent})
        if not plan.todo:
            self._name_pending(plan.facts)
            self._require_answers(plan)
            self.flow.report.closing = "no package to upgrade"
            return
        if plan.compute.begun or self._is_open:
            self.flow.confirm(_question(self.cluster, plan), self.cluster)
        left: list[str] = []
        if plan.compute.begun or plan.compute.free:
            rolling.work_through(plan.compute)
            self.failed |= rolling.failed
            self.done += rolling.done
            left += rolling.queue
            self._check_kernels()
        stop = rolling.is_over_limit
        others = list(plan.others)
        while others and not stop and self._is_open:
            with self.flow.lock_when_free():
                # the window may have closed meanwhile
                if self._is_open:
                    stop = not self._on_other(others.pop(0))
        left += others
        self._name_pending({**plan.facts, **self.facts})
        result = f"{fold(self.done)} upgraded" if self.done else ""
        rolling.conclude(result, left, self.failed, stopped=stop)
        self._require_answers(plan)

    def _work(self, names: tuple[str, ...]) -> WorkResult:
        outcome = self._run(names, drained=True)
        failed = failed_nodes(outcome, names, "packages of some nodes may be upgraded", self._goes_on)
        facts = facts_in(outcome)
        self.facts |= facts
        return WorkResult(failed, {name: each.reboot for name, each in facts.items() if each.reboot})

    def _on_other(self, name: str) -> bool:
        """A node that continues serving; whether it worked."""
        self.flow.operator.info(f"{COMMAND}: {name}")
        try:
            outcome = self._run([name], drained=False)
        except StoppedError as stop:
            # what became of the nodes before is still to be reported
            self.failed[name] = stop.message
            return False
        failed = failed_nodes(outcome, [name], f"the packages of {name} may be upgraded", self._goes_on)
        self.facts |= facts_in(outcome)
        self.failed |= failed
        self.done += [] if failed else [name]
        return not failed

    def _run(self, names: Iterable[str], *, drained: bool) -> RunOutcome:
        variables = {**_variables(), "deepops_os_drained": drained}
        reason = encode_reason(f"node {COMMAND}")
        return self.flow.run_playbooks(self.cluster, (UPGRADE,), names, deepops_drain_reason=reason, **variables)

    def _check_kernels(self) -> None:
        """Name nodes that rebooted into another kernel than the newest one."""
        from deepopsctl.run.runner import ask

        names = [name for name, facts in self.facts.items() if facts.reboot and name in self.done]
        if names:
            variables = {**_variables(), "deepops_os_nodes": names, "deepops_os_refresh": False}
            request = replace(self.flow.base, playbook=QUERY, more=(), limit=",".join(names), extra_vars=variables)
            self.flow.report.warnings += kernel_warnings(self.facts, facts_in(ask(request)))

    def _name_pending(self, facts: Mapping[str, OsFacts]) -> None:
        """What the nodes need, and this command does not do."""
        names_by_text: dict[str, list[str]] = {}
        for name, each in facts.items():
            for text in pending_sentences(each, reboots=name in self._compute):
                names_by_text.setdefault(text, []).append(name)
        self.flow.report.warnings += [f"{fold(names)}: {text}" for text, names in names_by_text.items()]

    def _require_answers(self, plan: OsPlan) -> None:
        if plan.silent:
            message = f"{fold(plan.silent)} is not upgraded, the others are done"
            raise StoppedError(message, self._goes_on, plan.exit_code)

    @property
    def _is_open(self) -> bool:
        return self.options.pace.is_open(datetime.now())

    @property
    def _compute(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes if is_drained_for_it(node))

    @property
    def _goes_on(self) -> str:
        return f"`deepopsctl {self.options.again}` continues from here"


def _question(cluster: Cluster, plan: OsPlan) -> str:
    rebooting = [name for name in (*plan.compute.begun, *plan.compute.free) if plan.facts[name].will_reboot]
    parts = [f"upgrade the packages of {fold(plan.todo)} of {cluster.name}"]
    parts += [f"reboot {fold(rebooting)}"] if rebooting else []
    parts += [f"wait for the jobs on {fold(plan.busy)}"] if plan.busy else []
    return f"{', '.join(parts)}?"

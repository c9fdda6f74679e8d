"""`upgrade slurm`: another release on the whole cluster, while jobs run.

slurmdbd goes first, then slurmctld, login nodes, and compute nodes in batches: that is the order in which releases
understand each other. The record on the first controller says how far it is, and keeps deploys away that would mix
releases. Every step can be repeated: after an interruption the same command continues. A new slurmdbd or slurmctld
that does not start is undone: packages, accounting and state are again as they were.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.content import components
from deepopsctl.errors import ExitCode
from deepopsctl.files import write_atomic
from deepopsctl.lifecycle.package_repository import PackageRepository
from deepopsctl.lifecycle.upgrade_plan import NodeFacts, Plan, Wanted, is_done, make_plan, service_hosts
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.node_programs._shared.node_states import NODE_PREFIX
from deepopsctl.nodes.admit import failed_checks, validate
from deepopsctl.nodes.drain import DrainOptions, NodeDrain
from deepopsctl.nodes.node_pass import NodePass
from deepopsctl.nodes.workflow import (
    SLURM,
    Flow,
    Operator,
    Report,
    StoppedError,
    failed_nodes,
    require_success,
    state_of,
)
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.amounts import amount
from deepopsctl.text.answers import Fields, mapping, texts, words
from deepopsctl.text.node_sets import fold
from deepopsctl.text.yaml_editor import with_settings

QUERY, RECORD, PREPARE = (
    "operate/upgrade/upgrade-query",
    "operate/upgrade/upgrade-record",
    "operate/upgrade/upgrade-prepare",
)
CONTROLLER, NODES, BACK = (
    "operate/upgrade/upgrade-controller",
    "operate/upgrade/upgrade-nodes",
    "operate/upgrade/upgrade-back",
)
DRAIN, WITHDRAW, CHECK = (
    "operate/upgrade/upgrade-drain",
    "operate/upgrade/upgrade-withdraw",
    "operate/upgrade/upgrade-check",
)
QUEUE = "operate/upgrade/upgrade-queue"
# the phases of the record, in their order; `back` undoes those before `nodes`
PREPARING, CENTER, ON_NODES, ENDING, GOING_BACK = "prepare", "controller", "nodes", "deploy", "back"
# after the controllers there is no way back
_FORWARD = (ON_NODES, ENDING)
START_S = 300
# of a drain: `node upgrade`
VERB = "upgrade"
_REASON = f"{NODE_PREFIX}{VERB}"


def upgrade_slurm(directory: ClusterDir, wanted: Wanted, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    flow = Flow(directory, base, operator, Report("upgrade slurm", ()))
    again = f"upgrade slurm --to {wanted.release}"
    upgrade = _Upgrade(flow, directory.cluster(), wanted, again=again)
    with flow.reporting(), flow.lock():
        upgrade.upgrade_all()
    return flow.report


def plan_upgrade(directory: ClusterDir, wanted: Wanted, base: RunRequest) -> Plan:
    """What `upgrade slurm` would do; nothing is changed."""
    plan, record, _slurm = _query(directory, directory.cluster(), wanted, base)
    if plan.refusals or record.get("phase", PREPARING) != PREPARING:
        return plan
    return _simulated(plan, PackageRepository(directory), base)


def _simulated(plan: Plan, repository: PackageRepository, base: RunRequest) -> Plan:
    """The plan with what apt says of it on the nodes."""
    from deepopsctl.run.runner import ask

    if not plan.todo:
        return plan
    outcome = ask(replace(base, playbook=CHECK, more=(), limit=",".join(plan.todo), extra_vars={
        "deepops_upgrade_packages": {name: plan.packages(name) for name in plan.todo},
        "deepops_upgrade_platforms": {name: node.platform for name, node in plan.facts.items()},
        "deepops_upgrade_indexes": {
            platform: repository.offer(values).index for platform, values in plan.repositories.items()
        },
    }))  # fmt: skip
    why = {
        result.host: str(result.data["not_installable"])
        for result in outcome.summary.results
        if result.data.get("not_installable")
    }
    why |= {each.host: each.message for each in outcome.summary.failures if each.host in plan.todo}
    return plan.with_obstacles(why)


def _query(
    directory: ClusterDir, cluster: Cluster, wanted: Wanted, base: RunRequest
) -> tuple[Plan, Mapping[str, object], SlurmState]:
    from deepopsctl.run.runner import ask

    outcome = ask(replace(base, playbook=QUERY, more=(), limit="", extra_vars={}))
    answers = ((result.host, Fields.of(result.data.get("upgrade"))) for result in outcome.summary.results)
    facts = {host: answer.fill(NodeFacts) for host, answer in answers if answer.values}
    first = cluster.controllers[0].name
    if first not in facts:
        failed = next((each.message for each in outcome.summary.failures if each.host in ("", first)), "no answer")
        code = ExitCode.UNREACHABLE if first in outcome.summary.unreachable else ExitCode.FAILED
        raise StoppedError(f"{first}: {failed}; nothing was changed", "see `deepopsctl status`", code)
    slurm = state_of(outcome)
    repository = PackageRepository(directory)
    plan = make_plan(
        cluster, wanted, facts, repository.suites(), slurm, lambda values: repository.offer(values).plugins
    )
    return plan, facts[first].record, slurm


@dataclass(slots=True)
class _Upgrade(NodePass):
    wanted: Wanted

    def upgrade_all(self) -> None:
        """All phases that are left."""
        self.flow.survey(self.cluster, slurm=False)
        plan, record, slurm = _query(self.flow.directory, self.cluster, self.wanted, self.flow.base)
        phase = str(record.get("phase") or "")
        if phase == GOING_BACK and record.get("to") == self.wanted.release:
            self._go_back(plan, str(record.get("why")), set(texts(record.get("hosts"))))
        self._refuse(plan, phase, slurm)
        self.flow.report.nodes = plan.todo
        if not plan.todo and not record and self._is_declared(plan):
            self._name_left(plan)
            self.flow.report.closing = f"all nodes that answer have Slurm {plan.version}"
            return
        self.flow.confirm(self._question(plan, resumed=bool(record)), self.cluster)
        if not record:
            since = f"{datetime.now(UTC):%F %H:%M} UTC"
            known = {"from": plan.installed, "to": self.wanted.release, "version": plan.version, "since": since}
            self._record(phase=PREPARING, **known)
        self._prepare(plan, first=phase in ("", PREPARING))
        # packages that are there say nothing of the daemons: what was cut off is done again
        with_old_slurmd = plan.center
        if phase == CENTER or (plan.center and phase not in _FORWARD):
            self._center(plan, is_up=slurm.controller_up, resumed=phase == CENTER)
            with_old_slurmd = self._hosts
        self._on_nodes(plan, with_old_slurmd)
        self._end(plan)

    def _refuse(self, plan: Plan, phase: str, slurm: SlurmState) -> None:
        if plan.refusals:
            message, hint = plan.refusals[0]
            raise StoppedError(f"{message}; nothing was changed", hint)
        if not slurm.controller_up and phase not in (PREPARING, CENTER):
            raise StoppedError(
                f"slurmctld does not answer: {slurm.error}; nothing was changed", "see `deepopsctl status`"
            )

    def _is_declared(self, plan: Plan) -> bool:
        """Whether the cluster directory has the release."""
        text = self.flow.directory.settings_text()
        return with_settings(text, _settings(plan)) == text

    def _question(self, plan: Plan, *, resumed: bool) -> str:
        word = "continue with the upgrade" if resumed else "upgrade Slurm"
        gap = "slurmctld stops until slurmdbd has converted its tables; " if plan.center else ""
        return (
            f"{word} of {self.cluster.name} from {plan.installed} to {plan.version} on "
            f"{amount(len(plan.todo), 'node')} in {amount(len(plan.batches), 'batch', 'batches')}? "
            f"{gap}{amount(len(plan.jobs), 'running job')} continue{'s' * (len(plan.jobs) == 1)}"
        )

    def _variables(self, plan: Plan) -> dict[str, object]:
        return {
            "deepops_upgrade_version": plan.version,
            "deepops_upgrade_versions": {name: values["version"] for name, values in plan.repositories.items()},
            "deepops_upgrade_repositories": plan.repositories,
            "deepops_upgrade_platforms": {name: node.platform for name, node in plan.facts.items()},
            "deepops_upgrade_packages": {name: plan.packages(name) for name in {*plan.todo, *self._hosts}},
            "deepops_upgrade_reason": _REASON,
            "deepops_upgrade_timeout": START_S,
        }

    def _prepare(self, plan: Plan, *, first: bool) -> None:
        """What can fail, fails here: a node is left out; without controllers nothing happens."""
        # one whose installation was cut off has the packages, and apt simulates nothing before it is finished
        names = [name for name in plan.todo if first or not plan.facts[name].unfinished]
        if not names:
            return
        self.flow.operator.info(f"fetch the packages on {fold(names)}, and simulate their installation")
        outcome = self._run(names, PREPARE, **self._variables(plan))
        try:
            require_success(outcome, self._named(plan.center), "nothing was upgraded", "fix it, then run it again")
        except StoppedError:
            if first and not outcome.stopped:
                self._withdraw()
            raise
        self._leave_out(outcome, names)
        if first and (refused := [name for name in names if name in self.failed]):
            self._run(refused, WITHDRAW)

    def _withdraw(self) -> None:
        """No package of the new release was installed: nothing of it stays in apt's sources.

        First of all: with its preferences apt may be unable to install anything of Slurm, as the deploy does.
        """
        self.flow.operator.info("withdraw the repository of the new release")
        self._record()
        self._run([node.name for node in self.cluster.nodes], WITHDRAW)
        self._run([node.name for node in self.cluster.nodes], SLURM)

    def _center(self, plan: Plan, *, is_up: bool, resumed: bool) -> None:
        """slurmdbd and slurmctld; where they are on different hosts, one after the other."""
        self._record(phase=CENTER)
        # one that is off has been stopped by this upgrade, after the drain
        if is_up and self._computing_hosts:
            self._keep_jobs_away(plan)
        dbd = {node.name for node in self.cluster.with_role(Role.DBD)}
        controllers = {node.name for node in self.cluster.controllers}
        together = bool(dbd & controllers)
        both = [("slurmdbd", dbd), ("slurmctld", controllers)]
        since = time.time()
        for what, names in [("slurmdbd and slurmctld", dbd | controllers)] if together else both:
            # an earlier call has upgraded slurmdbd, and gone back with slurmctld alone: nothing is saved there any more
            if not resumed and all(is_done(plan.facts[name], plan.repositories) for name in names):
                continue
            self.flow.operator.info(f"upgrade {what} on {fold(names)}")
            outcome = self._run(names, CONTROLLER, **self._variables(plan))
            if outcome.stopped or set(outcome.summary.unreachable) & names:
                require_success(
                    outcome, self._named(names), "slurmctld may be stopped; running jobs continue", self.goes_on
                )
            if not outcome.ok:
                why = next((each.message.partition("\n")[0] for each in outcome.summary.failures), "it failed")
                self._record(phase=GOING_BACK, why=why, hosts=sorted(names))
                self._go_back(plan, why, names)
            if not together and names == dbd:
                self._hand_over(since)

    def _keep_jobs_away(self, plan: Plan) -> None:
        """Hosts of slurmdbd and slurmctld that compute: their slurmd follows when slurmctld is upgraded."""
        names = self._computing_hosts
        if self.wanted.drain:
            self._drain(names)
        self.flow.operator.info(f"let no job start on {fold(names)}")
        first = self.cluster.controllers[0].name
        outcome = self._run([first], DRAIN, deepops_upgrade_nodes=list(names), **self._variables(plan))
        require_success(outcome, self.cluster.controllers[:1], "nothing was upgraded", self.goes_on)
        if starting := _answer(outcome, "starting"):
            reasons = "; ".join(f"{name}: {why}" for name, why in starting.items())
            raise StoppedError(f"nothing was upgraded: {reasons}", f"see `squeue`, then {self.goes_on}")

    def _hand_over(self, since: float) -> None:
        """slurmctld has kept its records meanwhile, as many as it has room for: they reach the new slurmdbd."""
        variables = {"deepops_upgrade_since": since, "deepops_upgrade_timeout": START_S}
        outcome = self._run([self.cluster.controllers[0].name], QUEUE, **variables)
        require_success(outcome, self.cluster.controllers[:1], "slurmdbd is upgraded", self.goes_on)
        queue = _answer(outcome, "queue")
        left, lost = queue.get("left"), queue.get("discarded")
        if left or lost:
            self.flow.report.warnings.append(
                f"accounting: slurmctld still has {left} records for slurmdbd and has given up {lost}, for lack of "
                "room (MaxDBDMsgs); `sacctmgr show runawayjobs` lists jobs whose end is missing"
            )

    def _go_back(self, plan: Plan, why: str, hosts: set[str]) -> None:
        """Packages, accounting and state as they were; raises StoppedError at its end."""
        self.flow.operator.info(f"go back to Slurm {plan.installed} on {fold(hosts)}: {why}")
        # not of the new packages: by now a host may be silent, or the repository gone
        outcome = self._run(hosts, BACK, deepops_upgrade_timeout=START_S)
        require_success(outcome, self._named(hosts), "slurmctld may be stopped; running jobs continue", self.goes_on)
        dbd = {node.name for node in self.cluster.with_role(Role.DBD)}
        # on the others slurmd is old and its programs are new: no job would start there
        self._end_drains(name for name in self._computing_hosts if name in hosts or name not in dbd)
        self._withdraw()
        but = "" if dbd <= hosts else f", with slurmdbd {self.wanted.release}"
        raise StoppedError(
            f"Slurm {self.wanted.release} did not start, {plan.installed} runs again as before{but}: {why}",
            "see `deepopsctl runs show`; fix it, then run the same command again",
        )

    def _on_nodes(self, plan: Plan, hosts: tuple[str, ...]) -> None:
        """`hosts` that compute, login nodes, compute nodes; the next batch only once jobs run on the one before."""
        if plan.login or plan.batches:
            self._record(phase=ON_NODES)
        if names := tuple(name for name in self._computing_hosts if name in hosts):
            self._batch(plan, names, f"upgrade slurmd on {fold(names)}")
        if names := self._without_left(plan.login):
            self.flow.operator.info(f"upgrade login nodes {fold(names)}")
            outcome = self._run(names, NODES, deepops_upgrade_nodes=list(names), **self._variables(plan))
            self._leave_out(outcome, names)
        for number, batch in enumerate(plan.batches, 1):
            if names := self._without_left(batch):
                self._batch(plan, names, f"batch {number} of {len(plan.batches)}: upgrade {fold(names)}")
        # of a batch that was cut off between its upgrade and its end
        compute = (node.name for node in self.cluster.with_role(Role.COMPUTE) if node.name not in plan.silent)
        self._end_drains(self._without_left(compute))

    def _batch(self, plan: Plan, names: tuple[str, ...], what: str) -> None:
        first = self.cluster.controllers[0].name
        if self.wanted.drain:
            self._drain(names)
        self.flow.operator.info(what)
        outcome = self._run([first, *names], NODES, deepops_upgrade_nodes=list(names), **self._variables(plan))
        require_success(outcome, self.cluster.controllers[:1], "the nodes before are upgraded", self.goes_on)
        self._leave_out(outcome, names)
        registered = _answer(outcome, "registered")
        for left in (_answer(outcome, "starting"), registered.get("left")):
            self.failed |= {name: why for name, why in words(left).items() if name not in self.failed}
        self._stop_at_limit(plan)
        # others were out of service before, or a user has drained them meanwhile
        if serving := self._without_left(texts(registered.get("resumed"))):
            self._validate(serving)

    def _validate(self, names: tuple[str, ...]) -> None:
        self.flow.operator.info(f"validate {fold(names)}")
        validation = validate(self.flow, self.cluster, [self.cluster.controllers[0].name, *names])
        outcome = validation.outcome
        if outcome.stopped:
            raise StoppedError("stopped: the nodes before are upgraded", self.goes_on, outcome.exit_code)
        if text := failed_checks(validation):
            raise StoppedError(
                f"{fold(names)} failed the validation, no further node is upgraded: {text}",
                f"see `deepopsctl runs show {outcome.run_id}`; fix it, then {self.goes_on}",
            )

    def _drain(self, names: tuple[str, ...]) -> None:
        """Wait for the end of jobs; only nodes that were in service are drained, and resumed afterwards."""
        nodes = self.flow.survey(self.cluster).nodes
        mine = [name for name in names if name in nodes and not nodes[name].is_drained]
        options = DrainOptions(fold(names), self.wanted.timeout_s)
        NodeDrain(self.flow, self.cluster, mine, VERB, options).drain()
        NodeDrain(self.flow, self.cluster, names, VERB, options).wait()

    def _end_drains(self, names: Iterable[str]) -> None:
        """End this command's drains of the nodes, and no others."""
        wanted = tuple(names)
        if not wanted:
            return
        slurm = self.flow.slurm_now()
        if not slurm.controller_up:
            raise StoppedError(f"slurmctld does not answer: {slurm.error}; nodes may be drained", self.goes_on)
        drained = {name for name, node in slurm.nodes.items() if node.is_drained and node.reason == _REASON}
        self.resume([name for name in wanted if name in drained])

    def _stop_at_limit(self, plan: Plan) -> None:
        failed = [name for name in self.failed if name in {one for batch in plan.batches for one in batch}]
        if len(failed) > plan.allowed_failures:
            raise StoppedError(
                f"{fold(failed)} failed, more than --max-failed {plan.allowed_failures}: {self.failed[failed[-1]]}",
                f"fix them, then {self.goes_on}",
            )

    def _end(self, plan: Plan) -> None:
        """The cluster directory says the new release, and a deploy has the rest follow: configuration, timeouts."""
        self._record(phase=ENDING)
        directory = self.flow.directory
        write_atomic(directory.settings, with_settings(directory.settings_text(), _settings(plan)))
        self.flow.operator.info("deploy what follows from the new release")
        # those that do not answer as well: the exit code says that they were left out
        names = [node.name for node in self.cluster.nodes if node.name not in self.failed]
        # not those of cluster.yml: one that was never deployed is not this command's to begin
        wanted = {SLURM, *self.flow.deployed}
        order = [name for name in components(self.flow.base.content) if name in wanted]
        outcome = self._run(names, *order)
        require_success(outcome, self._named(plan.center), "all nodes are upgraded", self.goes_on)
        self._record()
        self._name_left(plan)
        self.flow.report.closing = f"{self.cluster.name} has Slurm {plan.version}"
        if self.failed and self.flow.report.exit_code is ExitCode.OK:
            # no task failed on those that have not registered
            raise StoppedError(f"{fold(self.failed)} is left out, the others have Slurm {plan.version}", self.goes_on)

    def _name_left(self, plan: Plan) -> None:
        again = f"`deepopsctl {self.again}` includes it once it is repaired"
        why = {**dict.fromkeys(plan.silent, "does not answer"), **self.failed}
        for name, reason in why.items():
            self.flow.report.warnings.append(f"{name} is left out, with its old Slurm: {reason}; {again}")

    @property
    def _hosts(self) -> tuple[str, ...]:
        """The hosts of slurmdbd and slurmctld."""
        return tuple(node.name for node in service_hosts(self.cluster))

    @property
    def _computing_hosts(self) -> tuple[str, ...]:
        """Those of them that run jobs as well."""
        return tuple(node.name for node in service_hosts(self.cluster) if Role.COMPUTE in node.roles)

    def _without_left(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.failed)

    def _leave_out(self, outcome: RunOutcome, names: Iterable[str]) -> None:
        """Note which nodes failed; stops where the run itself was stopped."""
        self.failed |= failed_nodes(outcome, names, "the nodes before are upgraded", self.goes_on)

    def _record(self, **values: object) -> None:
        """What the record says from now on; nothing ends it."""
        outcome = self._run(self._hosts, RECORD, deepops_upgrade_record=values)
        require_success(outcome, self.cluster.controllers[:1], "nothing more was changed", self.goes_on)

    def _named(self, names: Iterable[str]) -> tuple[Node, ...]:
        wanted = frozenset(names)
        return tuple(node for node in self.cluster.nodes if node.name in wanted)

    def _run(self, names: Iterable[str], *playbooks: str, **extra: object) -> RunOutcome:
        return self.flow.run_playbooks(self.cluster, playbooks, names, **extra)


def _settings(plan: Plan) -> dict[str, object]:
    return {"slurm_install": "repository", "slurm_release": plan.wanted.release}


def _answer(outcome: RunOutcome, key: str) -> Mapping[str, object]:
    """What a phase of the node program slurm_upgrade returned; empty where it did not come to it."""
    return next(filter(None, (mapping(result.data.get(key)) for result in outcome.summary.results)), {})

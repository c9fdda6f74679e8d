"""`upgrade nvidia`: another branch of the driver on all nodes with GPUs, where jobs are disturbed least.

The settings get the branch first, so that no deploy goes back to the old one; then the component `nvidia` is deployed
on nodes that are drained and empty, a few at a time. It exchanges the packages, and reboots where the old kernel
modules can't be unloaded. Every step can be repeated: the same command continues.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.selection import select_nodes
from deepopsctl.cluster.settings import site_values
from deepopsctl.errors import ExitCode
from deepopsctl.files import write_atomic
from deepopsctl.lifecycle.pace import Pace
from deepopsctl.lifecycle.rolling import Rolling, Selection, WorkResult, select
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.model.json_objects import NvidiaPlanParts
from deepopsctl.nodes.workflow import SILENT, Flow, Operator, Report, StoppedError, failed_nodes, state_of
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.questions import SLURM_INFO
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.node_sets import fold
from deepopsctl.text.yaml_editor import with_settings

COMMAND = "upgrade nvidia"
COMPONENT = "nvidia"
SETTING = "nvidia_driver_branch"
# what the role reports of packages of the driver
EXCHANGE = ("package", "exchange")


@dataclass(frozen=True, slots=True)
class NvidiaOptions:
    """The options of `upgrade nvidia`: `limit` are node sets, all nodes with GPUs without any."""

    branch: str
    limit: str = ""
    pace: Pace = field(default_factory=Pace)

    @property
    def again(self) -> str:
        """The command that continues."""
        words = [COMMAND, "--to", self.branch, *(["--limit", shlex.quote(self.limit)] if self.limit else [])]
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class NvidiaPlan:
    """Which packages go to the branch on which node, and why other nodes refuse it."""

    branch: str
    exchanges: Mapping[str, Mapping[str, str]]
    refusals: Mapping[str, tuple[str, str]]
    compute: Selection
    silent: tuple[str, ...]
    slurm: SlurmState

    @property
    def todo(self) -> tuple[str, ...]:
        """The nodes that something is done to."""
        return (*self.compute.begun, *self.compute.free)

    @property
    def busy(self) -> tuple[str, ...]:
        """Those whose jobs have to end first."""
        busy = self.slurm.busy
        return tuple(name for name in self.todo if name in busy)

    def document(self) -> NvidiaPlanParts:
        """The JSON object of `--check`."""
        jobs = self.slurm.jobs_on(self.todo)
        return {
            "to": self.branch,
            "nodes": {name: dict(packages) for name, packages in self.exchanges.items()},
            "busy": list(self.busy),
            "left_alone": dict(self.compute.left_alone),
            "unreachable": list(self.silent),
            "refusals": [{"host": host, "message": text, "hint": hint} for host, (text, hint) in self.refusals.items()],
            "jobs": [{"id": job.id, "user": job.user, "nodes": list(job.nodes)} for job in jobs],
        }


def upgrade_nvidia(directory: ClusterDir, options: NvidiaOptions, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    nodes = _selected(cluster, options)
    flow = Flow(directory, base, operator, Report(COMMAND, tuple(node.name for node in nodes)))
    with flow.reporting():
        _upgrade(flow, cluster, nodes, options)
    return flow.report


def plan_nvidia(directory: ClusterDir, options: NvidiaOptions, base: RunRequest) -> NvidiaPlan:
    """What `upgrade nvidia` would do; nothing is changed."""
    cluster = directory.cluster()
    return _query(cluster, _selected(cluster, options), options, base)


def _selected(cluster: Cluster, options: NvidiaOptions) -> tuple[Node, ...]:
    nodes = select_nodes([options.limit], cluster, "--limit") if options.limit else cluster.nodes
    selected = tuple(node for node in nodes if node.gpus and Role.COMPUTE in node.roles)
    if not selected:
        raise StoppedError("no node with GPUs in cluster.yml is among them", "see `deepopsctl status`")
    return selected


def _query(cluster: Cluster, nodes: tuple[Node, ...], options: NvidiaOptions, base: RunRequest) -> NvidiaPlan:
    from deepopsctl.run.runner import ask

    first, names = cluster.controllers[0].name, [node.name for node in nodes]
    # in the digest as well: nodes whose last deploy was good would be taken for done
    wanted = {SETTING: options.branch, "nvidia_driver_drain": True}
    limit = ",".join(dict.fromkeys([*names, first]))
    request = replace(base, playbook=COMPONENT, more=(SLURM_INFO,), limit=limit, check=True, extra_vars={})
    outcome = ask(replace(request, user_vars=(*base.user_vars, wanted)))
    slurm = state_of(outcome)
    if not slurm.controller_up:
        raise StoppedError(f"slurmctld on {first} does not answer; nothing was changed", "see `deepopsctl status`")
    return plan_of(outcome, names, options.branch, slurm)


def plan_of(outcome: RunOutcome, names: list[str], branch: str, slurm: SlurmState) -> NvidiaPlan:
    """The plan from a finished check run of the component."""
    summary = outcome.summary
    exchanges: dict[str, dict[str, str]] = {}
    for change in summary.changes:
        if (change.kind, change.action) == EXCHANGE and change.host in names:
            exchanges.setdefault(change.host, {})[change.name] = change.detail
    chosen = select(names, slurm, COMMAND)
    return NvidiaPlan(
        branch,
        exchanges,
        {
            failure.host: (failure.message, failure.hint)
            for failure in summary.failures
            if not failure.unreachable and failure.host in (*names, "")
        },
        Selection(
            tuple(name for name in chosen.begun if name not in summary.unreachable),
            tuple(name for name in chosen.free if name in exchanges),
            {name: why for name, why in chosen.left_alone.items() if name in exchanges},
        ),
        tuple(name for name in names if name in summary.unreachable),
        slurm,
    )


def _upgrade(flow: Flow, cluster: Cluster, nodes: tuple[Node, ...], options: NvidiaOptions) -> None:
    flow.survey(cluster, slurm=False)
    plan = _query(cluster, nodes, options, flow.base)
    if plan.refusals:
        host, (message, hint) = next(iter(plan.refusals.items()))
        raise StoppedError(f"{host}: {message}; nothing was changed", hint)
    rolling = Rolling(flow, cluster, options.pace, lambda names: _work(rolling, names), again=options.again)
    rolling.leave_out({**plan.compute.left_alone, **dict.fromkeys(plan.silent, SILENT)})
    is_open = options.pace.is_open(datetime.now())
    if plan.todo:
        if plan.compute.begun or is_open:
            flow.confirm(_question(cluster, plan), cluster)
            _declare(flow.directory, options.branch)
        rolling.work_through(plan.compute)
    elif not plan.silent and not plan.compute.left_alone:
        # a deploy would go back to the branch of the settings
        _declare(flow.directory, options.branch)
        flow.report.closing = f"no node has another branch than {options.branch}"
    result = f"{fold(rolling.done)} has branch {options.branch}" if rolling.done else ""
    rolling.conclude(result, rolling.queue, {}, stopped=rolling.is_over_limit)
    if plan.silent:
        message = f"{fold(plan.silent)} {SILENT}, and may have another branch; the others are done"
        raise StoppedError(message, rolling.goes_on, ExitCode.UNREACHABLE)


def _declare(directory: ClusterDir, branch: str) -> None:
    text = directory.settings_text()
    write_atomic(directory.settings, with_settings(text, {SETTING: branch}))
    if site_values(directory).get(SETTING) != branch:
        # drivers would stay as they are, and be taken for exchanged
        write_atomic(directory.settings, text)
        message = f"a file that comes after {directory.settings.name} in group_vars/all sets {SETTING}, too"
        raise StoppedError(f"{message}; nothing was changed", "remove it there, then run the same command again")


def _work(rolling: Rolling, names: tuple[str, ...]) -> WorkResult:
    """Deploy the driver; it reboots by itself where it has to, because what follows needs the new modules."""
    outcome = rolling.flow.run_playbooks(rolling.cluster, (COMPONENT,), names, nvidia_driver_reboot=True)
    return WorkResult(failed_nodes(outcome, names, "drivers of some nodes may be exchanged", rolling.goes_on), {})


def _question(cluster: Cluster, plan: NvidiaPlan) -> str:
    waits = f", wait for the jobs on {fold(plan.busy)}" if plan.busy else ""
    return f"exchange the driver of {fold(plan.todo)} of {cluster.name} for branch {plan.branch}{waits}?"

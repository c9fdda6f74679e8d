"""`node reboot`: nodes reboot when their jobs have ended, and take jobs again when they passed their validation.

Slurm does it: it drains a node, reboots it once it is idle, and waits for it. Login nodes, nodes that are drained
already and nodes without a slurmd are rebooted by systemd when no job is there. Every step can be repeated: after an
interruption, the same command continues from what Slurm has of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.selection import select_nodes
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.node_programs._shared.node_states import PREFIX, REBOOT_PREFIX
from deepopsctl.nodes.node_pass import NodePass
from deepopsctl.nodes.wait_for_jobs import Wait, job_words
from deepopsctl.nodes.workflow import (
    Flow,
    Operator,
    Report,
    StoppedError,
    encode_reason,
    failed_nodes,
    require_success,
    state_of,
)
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState
from deepopsctl.text.node_sets import fold

PLAYBOOK = "operate/nodes/reboot"
# jobs of the whole cluster depend on what runs there
SERVICES = (Role.CONTROLLER, Role.DBD, Role.NFS_SERVER)
# what a server may take to boot where systemd reboots it
BOOT_S = 1800
# of a drain, with what the module puts before it
_REASON = REBOOT_PREFIX.removeprefix(PREFIX)


@dataclass(frozen=True, slots=True)
class RebootOptions:
    """The options of `node reboot`; `max_down` is 0 for all nodes at once."""

    nodes: tuple[str, ...]
    reason: str = ""
    wait: bool = False
    timeout_s: int = 0
    max_down: int = 0


class Phase(StrEnum):
    """What has become of a request, as it is shown."""

    WAITING = "waits for its jobs to end"
    REBOOTING = "reboots"
    BACK = "is back"
    LATE = "is not back in time"
    IN_SERVICE = "is in service"
    TAKEN_OUT = "was taken out of service by another user"


def phase_of(node: SlurmNode | None) -> Phase:
    """The phase of a node for which a reboot was requested."""
    if node is None:
        return Phase.TAKEN_OUT
    own = node.reason.startswith(REBOOT_PREFIX)
    if "REBOOT_REQUESTED" in node.flags:
        return Phase.WAITING
    if "REBOOT_ISSUED" in node.flags:
        return Phase.REBOOTING
    if own and "DOWN" in node.flags and "NOT_RESPONDING" in node.flags:
        return Phase.LATE
    if own and "DOWN" in node.flags:
        return Phase.BACK
    if node.is_drained or node.is_faulty:
        return Phase.TAKEN_OUT
    return Phase.IN_SERVICE


def reboot(directory: ClusterDir, options: RebootOptions, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    nodes = select_nodes(options.nodes, cluster)
    refuse_services(nodes)
    flow = Flow(directory, base, operator, Report("node reboot", tuple(node.name for node in nodes)))
    with flow.reporting():
        _Reboot(flow, cluster, nodes, options).reboot_all()
    return flow.report


def reboot_drained(flow: Flow, cluster: Cluster, names: Sequence[str]) -> dict[str, str]:
    """Have Slurm reboot nodes that an upgrade drained, and wait; {name: reason} of those that are not back.

    Those that are back are down in Slurm until they are admitted. Reboots requested before count as well.
    """
    reason, stands = f"{_REASON}: {flow.verb}", f"{fold(names)} stays drained and was not rebooted"
    hint = "see `sinfo -R`, then run the same command again"
    decisions = _decisions(
        flow.set_node_state(cluster, "rebooted", names, stands, hint, reason, deepops_next_state="DOWN")
    )
    away = {name: f"it does not answer slurmctld ({text})" for name, text in decisions.get("host", {}).items()}
    lost = {**decisions.get("refused", {}), **away}
    waiting, wait = [name for name in names if name not in {**lost, **decisions.get("back", {})}], Wait()
    while waiting:
        flow.idle(wait.pause)
        slurm = flow.slurm_now()
        phases = {name: phase_of(slurm.nodes.get(name)) for name in waiting if slurm.controller_up}
        for name, phase in phases.items():
            if phase in (Phase.LATE, Phase.TAKEN_OUT):
                node = slurm.nodes.get(name)
                lost[name] = f"{phase}: {node.reason if node else 'Slurm has no such node'}"
            elif phase in (Phase.BACK, Phase.IN_SERVICE):
                flow.operator.info(f"  {name} {Phase.BACK}")
        waiting = [name for name in waiting if phases.get(name, Phase.WAITING) in (Phase.WAITING, Phase.REBOOTING)]
    return lost


def _decisions(outcome: RunOutcome) -> dict[str, dict[str, str]]:
    """{action: {node: message}} of a request for reboots."""
    by_action: dict[str, dict[str, str]] = {}
    for entry in (entry for result in outcome.summary.results for entry in result.entries("reboot")):
        by_action.setdefault(str(entry["action"]), {})[str(entry["name"])] = str(entry["message"])
    return by_action


def refuse_services(nodes: Iterable[Node]) -> None:
    """Refuse nodes that all others depend on."""
    for node in nodes:
        roles = [role.value for role in SERVICES if role in node.roles]
        if roles:
            raise InputError.single(
                "NODES",
                f"{node.name} is {', '.join(roles)}: all nodes depend on it, so no moment is safe for its reboot",
                "running jobs continue without a controller: reboot it yourself, then see `deepopsctl status`",
            )


@dataclass(slots=True)
class _Reboot(NodePass):
    """`queue` are compute nodes that nothing was requested for yet."""

    nodes: tuple[Node, ...]
    options: RebootOptions
    requested: dict[str, Phase | None] = field(default_factory=dict)
    tried: dict[str, StoppedError] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def reboot_all(self) -> None:
        """Reboot login nodes one after the other, then compute nodes as their jobs end."""
        compute = [node.name for node in self.nodes if Role.COMPUTE in node.roles]
        others = [node.name for node in self.nodes if node.name not in compute]
        with self.flow.lock():
            slurm = self.flow.survey(self.cluster, slurm=bool(compute))
            self._show_jobs(slurm.jobs_on(compute))
            self.flow.confirm(self._question(compute, others), self.cluster)
            # idle nodes first
            self.queue = sorted(compute, key=slurm.busy.__contains__)
            if others:
                outcome = self._reboot_hosts(others, deepops_reboot_serial=1)
                stands = "it was not rebooted, or is not back"
                require_success(outcome, self.nodes, stands, "see its console; then run it again")
                self.done += others
            self._request()
        if self.options.wait:
            wait = Wait(self.options.timeout_s)
            self.follow(wait, wait.hurry)
        self._conclude()

    def _show_jobs(self, jobs: Sequence[SlurmJob]) -> None:
        if jobs:
            self.flow.operator.info(f"  {job_words(jobs)} on these nodes: they continue to their end")

    def _question(self, compute: list[str], others: list[str]) -> str:
        parts = [f"{fold(compute)} when no job runs there"] if compute else []
        parts += [f"{fold(others)} now, which ends all sessions there"] if others else []
        return f"reboot {' and '.join(parts)}?"

    # --- requests

    @property
    def _reason(self) -> str:
        return f"{_REASON}: {self.options.reason}" if self.options.reason else _REASON

    def _request(self) -> None:
        """Request reboots of as many nodes as may be out of service at once."""
        most = self.options.max_down
        room = max(most - len(self.requested), 0) if most else len(self.queue)
        names, self.queue = self.queue[:room], self.queue[room:]
        if not names:
            return
        self.flow.operator.info(f"ask Slurm to reboot {fold(names)}")
        outcome = self._set(
            names, "rebooted", "Slurm was asked for no reboot", "DOWN" if self.options.wait else "RESUME"
        )
        by_action = _decisions(outcome)
        self.skipped.update(by_action.get("refused", {}))
        self.requested.update(dict.fromkeys([*by_action.get("reboot", {}), *by_action.get("none", {})]))
        back = list(by_action.get("back", {}))
        if back and not self.options.wait:
            self._admit(back)
        else:
            self.requested.update(dict.fromkeys(back))
        self._without_slurm(by_action.get("host", {}), state_of(outcome))

    def _without_slurm(self, reasons: dict[str, str], slurm: SlurmState) -> None:
        """Nodes that are drained stay so; those whose slurmd is away are validated."""
        names: list[str] = []
        for name in reasons:
            jobs = slurm.jobs_on([name])
            if name not in slurm.nodes:
                self.failed[name] = "it was not rebooted: slurmctld does not say any more which jobs run there"
            elif jobs:
                self.skipped[name] = f"{job_words(jobs)} there, and Slurm does not reboot it: it is drained or silent"
            else:
                names.append(name)
        stay = [name for name in names if slurm.nodes[name].is_drained and not reasons[name].startswith(REBOOT_PREFIX)]
        again = [name for name in names if name not in stay]
        if again:
            self._set(again, "out_of_service", "nothing was rebooted")
        if names:
            outcome = self._reboot_hosts(names)
            # the others still have to come back, and be admitted
            failed = failed_nodes(outcome, names, f"{fold(names)} may not be back", "run it again")
            self.failed |= {name: f"it was not rebooted, or is not back: {why}" for name, why in failed.items()}
            stay, again = ([name for name in part if name not in failed] for part in (stay, again))
            self.done += stay
        if stay:
            self.flow.report.warnings.append(
                f"{fold(stay)} stays drained, as before: `deepopsctl node resume {fold(stay)}`"
            )
        if again:
            self._admit(again)

    def _set(self, names: list[str], state: str, stands: str, following: str = "") -> RunOutcome:
        extra = {"deepops_next_state": following} if following else {}
        return self.flow.set_node_state(self.cluster, state, names, stands, "see `sinfo -R`", self._reason, **extra)

    def _reboot_hosts(self, names: list[str], **extra: object) -> RunOutcome:
        self.flow.operator.info(f"reboot {fold(names)}")
        variables = {"deepops_drain_reason": encode_reason(self._reason), "deepops_reboot_timeout": BOOT_S}
        return self.flow.run_playbooks(self.cluster, (PLAYBOOK,), names, **variables, **extra)

    def _admit(self, names: list[str]) -> None:
        """Validate nodes that are back; a later look at them says what became of them."""
        self.requested.update(dict.fromkeys(names, Phase.BACK))
        try:
            self.tried.update(self.admit(names))
        except StoppedError as stop:
            self.tried.update(dict.fromkeys(names, stop))

    # --- waiting

    @property
    def is_pending(self) -> bool:
        """Whether a node is not back yet, or not requested."""
        return bool(self.requested or self.queue)

    def observe(self, slurm: SlurmState) -> bool:
        """Show and note the phases that have changed."""
        phases = {name: phase_of(slurm.nodes.get(name)) for name in self.requested}
        changed = {name: phase for name, phase in phases.items() if phase is not self.requested[name]}
        for phase in dict.fromkeys(changed.values()):
            names = [name for name, other in changed.items() if other is phase]
            jobs = slurm.jobs_on(names) if phase is Phase.WAITING else ()
            self.flow.operator.info(f"  {fold(names)} {phase}" + (f": {job_words(jobs)} there" if jobs else ""))
        self.requested.update(changed)
        for name, phase in phases.items():
            self._settle(name, phase, slurm.nodes.get(name))
        return bool(changed)

    def step(self, _slurm: SlurmState) -> bool:
        """Admit those that are back, and request further reboots."""
        back = [name for name, phase in self.requested.items() if phase is Phase.BACK]
        if back:
            self._admit(back)
        if self.failed:
            # one that does not come back is a reason to look before more are rebooted
            self.skipped.update(dict.fromkeys(self.queue, "not rebooted, because another one failed"))
            self.queue.clear()
        self._request()
        return False

    def _settle(self, name: str, phase: Phase, node: SlurmNode | None) -> None:
        """Whether the node is done, or has failed."""
        if phase is Phase.IN_SERVICE:
            self.done.append(name)
        elif name in self.tried:
            self.failed[name] = self.tried[name].message
        elif phase in (Phase.LATE, Phase.TAKEN_OUT):
            self.failed[name] = f"{phase}: {node.reason if node else 'Slurm has no such node'}"
        else:
            return
        del self.requested[name]

    def late(self) -> StoppedError:
        """The requests stay in force."""
        names = fold(self.requested)
        return StoppedError(
            f"after {self.options.timeout_s} s {names} is not back in service; what Slurm was asked for stays in force",
            f"run the command again to continue waiting; `scontrol cancel_reboot {names}` withdraws the request",
            ExitCode.TIMEOUT,
        )

    def _conclude(self) -> None:
        report = self.flow.report
        if self.tried and not self.options.wait:
            self.failed.update({name: stop.message for name, stop in self.tried.items()})
        waiting = [
            name for name in self.requested if name not in self.failed and self.requested[name] is not Phase.BACK
        ]
        done = [*self.done, *(name for name in self.requested if name not in self.failed and name not in waiting)]
        parts = [f"{fold(done)} rebooted"] if done else []
        parts += [f"{fold(waiting)} reboots when its jobs have ended, see `deepopsctl status`"] if waiting else []
        report.closing = "; ".join(parts)
        left = {**self.skipped, **self.failed}
        if left:
            reasons: dict[str, list[str]] = {}
            for name, text in left.items():
                reasons.setdefault(text, []).append(name)
            raise StoppedError(
                "; ".join(f"{fold(names)}: {text}" for text, names in reasons.items()),
                f"{report.closing or 'nothing was rebooted'}; the same command continues with the others",
            )

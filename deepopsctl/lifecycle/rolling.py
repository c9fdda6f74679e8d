"""The pass of `upgrade os` and `upgrade nvidia`: drain, wait for jobs, work, reboot, validate, resume.

Slurm's drain reasons say how far it is (docs/develop/decisions/progress-in-slurm.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from deepopsctl.errors import ExitCode
from deepopsctl.lifecycle.pace import Pace, allowed_failures, batch_size
from deepopsctl.node_programs._shared import node_states
from deepopsctl.nodes.node_pass import NodePass
from deepopsctl.nodes.reboot import reboot_drained
from deepopsctl.nodes.wait_for_jobs import Wait, job_words
from deepopsctl.nodes.workflow import StoppedError, state_of
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState
from deepopsctl.text.node_sets import fold


@dataclass(frozen=True, slots=True)
class WorkResult:
    """How the work on some nodes ended: why it failed, and why those have to reboot that have to."""

    failed: Mapping[str, str]
    reboot: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Selection:
    """Nodes by what Slurm has of them: `begun` by an earlier call, `free`, or `left_alone`, with the reason."""

    begun: tuple[str, ...]
    free: tuple[str, ...]
    left_alone: Mapping[str, str]


def is_begun(node: SlurmNode, command: str) -> bool:
    """Whether `command` (`upgrade os`) took the node out of service."""
    own = node.reason.startswith((f"{node_states.NODE_PREFIX}{command}", f"{node_states.REBOOT_PREFIX}: {command}"))
    return own and bool(node.flags & (node_states.OUT_OF_SERVICE | node_states.REBOOTING))


def select(names: Iterable[str], slurm: SlurmState, command: str) -> Selection:
    """What the command may do with the nodes."""
    begun: list[str] = []
    free: list[str] = []
    left_alone: dict[str, str] = {}
    for name in names:
        node = slurm.nodes.get(name)
        if node is None:
            left_alone[name] = "Slurm does not know it"
        elif is_begun(node, command) or name in slurm.reserved:
            # in the reservation: its validation was cut off
            begun.append(name)
        elif node.is_drained or node.is_faulty or node.flags & node_states.REBOOTING:
            by = f" by {node.reason_user}" if node.reason_user else ""
            left_alone[name] = f"{node.word}{by}: {node.reason or 'no reason given'}"
        else:
            free.append(name)
    return Selection(tuple(begun), tuple(free), left_alone)


@dataclass(slots=True)
class Rolling(NodePass):
    """One pass at a pace. `work` gets nodes that are drained and empty."""

    pace: Pace
    work: Callable[[tuple[str, ...]], WorkResult]
    # drained, until their jobs have ended; those that an earlier call may have worked on
    _waiting: list[str] = field(default_factory=list)
    _begun: frozenset[str] = frozenset()
    # of these, those that are upgraded: jobs there are those of a validation that was cut off
    _worked_on: frozenset[str] = frozenset()
    _shown: tuple[SlurmJob, ...] = ()
    _allowed: int = 0
    _size: int = 0

    def work_through(self, selection: Selection) -> None:
        """All nodes of the selection that can be done now; those that are left stay in `queue`."""
        count = len(selection.begun) + len(selection.free)
        self._allowed = allowed_failures(self.pace.max_failed, count)
        self._size = batch_size(self.pace.batch, count)
        self.queue, self._begun = list(selection.free), frozenset(selection.begun)
        wait = Wait(self.pace.timeout_s)
        if selection.begun:
            with self.flow.lock():
                self._take_up(selection.begun)
        self.follow(wait, wait.restart)

    @property
    def is_pending(self) -> bool:
        """Whether jobs have to end first, or further nodes may be taken out now."""
        return bool(self._waiting or (self.queue and self._is_open and not self.is_over_limit))

    @property
    def is_over_limit(self) -> bool:
        """Whether more nodes failed than may."""
        return len(self.failed) > self._allowed

    def conclude(self, result: str, left: Sequence[str], more: Mapping[str, str], *, stopped: bool) -> None:
        """The end of the command: its `result`, nodes that are `left`, and `more` that failed elsewhere."""
        parts = [result] if result else []
        if left and not stopped:
            self.flow.report.warnings.append(self.pace.left_sentence(left, self.again, datetime.now()))
            parts.append(f"{fold(left)} is left")
        self.flow.report.closing = "; ".join(parts) or self.flow.report.closing
        failed = {**self.failed, **more}
        if not failed:
            return
        limit = f", more than --max-failed {self._allowed}" if self.is_over_limit else ""
        rest = f"; {fold(left)} is left" if left else ""
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise StoppedError(f"{fold(failed)} failed{limit}{rest}: {reasons}", f"fix it, then {self.goes_on}")

    @property
    def _is_open(self) -> bool:
        return self.pace.is_open(datetime.now())

    def step(self, slurm: SlurmState) -> bool:
        """Drain a batch, and work on the nodes that are empty."""
        if self.is_over_limit:
            self._give_back([name for name in self._waiting if name not in self._begun])
            # these may be half done
            self._waiting.clear()
            return True
        if not self._is_open:
            busy = slurm.busy - self._worked_on
            self._give_back([name for name in self._waiting if name in busy])
        elif self.queue and len(self._waiting) < self._size:
            slurm = self._fill(slurm)
        busy = slurm.busy
        ready = tuple(name for name in self._waiting if name not in busy)
        if ready:
            self._treat(ready)
        self._show_jobs(slurm.jobs_on(self._waiting))
        return bool(ready)

    def _fill(self, slurm: SlurmState) -> SlurmState:
        """Take nodes out of service, those without jobs first."""
        self.queue.sort(key=slurm.busy.__contains__)
        room = self._size - len(self._waiting)
        names, self.queue = self.queue[:room], self.queue[room:]
        return self._drain(names)

    def _take_up(self, begun: Sequence[str]) -> None:
        """Nodes that an earlier call took out of service; waits for a reboot that is under way."""
        slurm = self.flow.slurm_now()
        self._worked_on = slurm.reserved & frozenset(begun)
        rebooting = [name for name in begun if name in slurm.nodes and slurm.nodes[name].flags & node_states.REBOOTING]
        if rebooting:
            self.flow.operator.info(f"wait for the reboot of {fold(rebooting)}")
            self._fail(reboot_drained(self.flow, self.cluster, rebooting))
        self._drain([name for name in begun if name not in self.failed])

    def _drain(self, names: Sequence[str]) -> SlurmState:
        self.flow.operator.info(f"drain {fold(names)}")
        slurm = self._set_out_of_service(names, f"{fold(names)} may be drained", f"node {self.flow.verb}")
        # another process may have been quicker
        mine = {name for name in names if name in slurm.nodes and is_begun(slurm.nodes[name], self.flow.verb)}
        self._waiting += [name for name in names if name in mine]
        self._leave_out((name for name in names if name not in mine), slurm)
        return slurm

    def _set_out_of_service(self, names: Iterable[str], stands: str, reason: str) -> SlurmState:
        outcome = self.flow.set_node_state(self.cluster, "out_of_service", names, stands, self.goes_on, reason)
        return state_of(outcome)

    def _leave_out(self, names: Iterable[str], slurm: SlurmState) -> None:
        self.leave_out(select(names, slurm, self.flow.verb).left_alone)

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Name nodes that are not begun, with the reason."""
        self.flow.report.warnings += [
            f"{name} is left out: {why}; `deepopsctl {self.again}` includes it once that has ended"
            for name, why in reasons.items()
        ]

    def _give_back(self, names: Sequence[str]) -> None:
        """Nodes on which nothing was done take jobs again."""
        if not names:
            return
        self.flow.operator.info(f"resume {fold(names)}: nothing was done there")
        self.resume(names)
        self._waiting = [name for name in self._waiting if name not in names]
        self.queue += names

    def _treat(self, names: tuple[str, ...]) -> None:
        """Work, reboot, validate: what fails stays drained."""
        self._waiting = [name for name in self._waiting if name not in names]
        self.flow.operator.info(f"{self.flow.verb}: {fold(names)}")
        result = self.work(names)
        self._fail(result.failed)
        rebooting = [name for name in names if name in result.reboot and name not in self.failed]
        if rebooting:
            reasons = "; ".join(dict.fromkeys(result.reboot[name] for name in rebooting))
            self.flow.operator.info(f"reboot {fold(rebooting)}: {reasons}")
            self._fail(reboot_drained(self.flow, self.cluster, rebooting))
        self._admit([name for name in names if name not in self.failed])

    def _admit(self, names: list[str]) -> None:
        slurm = self.flow.slurm_now()
        known = {name: slurm.nodes[name] for name in names if name in slurm.nodes}
        unfit = {name: node for name, node in known.items() if node.flags & node_states.NOT_TESTABLE}
        self._fail({name: f"Slurm has it as {node.state.lower()}: {node.reason}" for name, node in unfit.items()})
        # the validation of a whole batch would be refused
        taken = {name for name, node in known.items() if node.is_taken_out_by_person} - set(unfit)
        self._leave_out(taken, slurm)
        good = [name for name in names if name not in unfit and name not in taken]
        if good:
            # their drain reason names the validation
            self.failed |= {name: refused.message for name, refused in self.admit(good).items()}
        self.done += [name for name in good if name not in self.failed]

    def _fail(self, reasons: Mapping[str, str]) -> None:
        """These stay drained, with a reason by which a later call knows them."""
        if not reasons:
            return
        self.failed.update(reasons)
        run = self.flow.report.outcomes[-1].run_id if self.flow.report.outcomes else ""
        why = f"node {self.flow.verb} failed, see run {run}"
        self._set_out_of_service(reasons, f"{fold(reasons)} may not be drained", why)

    def _show_jobs(self, jobs: tuple[SlurmJob, ...]) -> None:
        if jobs and jobs != self._shown:
            self.flow.operator.info(f"  {job_words(jobs)} still on {fold(self._waiting)}")
        self._shown = jobs

    def late(self) -> StoppedError:
        """Nodes with jobs or reboots under way stay drained."""
        names, after = fold(self._waiting), f"after {self.pace.timeout_s} s"
        if not names:
            return StoppedError(f"{after} slurmctld does not answer", self.goes_on, ExitCode.TIMEOUT)
        return StoppedError(
            f"{after} jobs are still on {names}, which stays drained, so that no new job starts",
            f"{self.goes_on}; `deepopsctl node resume {names}` ends the drain",
            ExitCode.TIMEOUT,
        )

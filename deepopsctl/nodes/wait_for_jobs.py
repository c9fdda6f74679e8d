"""Drain nodes and wait for their jobs before anything else is done to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepopsctl.errors import ExitCode, RunTimeoutError
from deepopsctl.model.cluster import Cluster
from deepopsctl.nodes.drain import encode_reason, wait_for_jobs
from deepopsctl.nodes.workflow import Flow, StoppedError, require_success, state_of
from deepopsctl.slurm.state import SlurmJob, SlurmState
from deepopsctl.text.node_sets import fold

SHOWN_JOBS = 8


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Seconds to wait for running jobs, and whether to cancel them instead; whether waiting jobs may be held."""

    names: str
    timeout_s: int
    force: bool = False
    hold_waiting: bool = False


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """The drain of some nodes, for the command `verb`."""

    flow: Flow
    cluster: Cluster
    names: Sequence[str]
    verb: str
    options: DrainOptions

    def show_jobs(self, slurm: SlurmState) -> None:
        """Show the running jobs, and what happens to them."""
        if not self.names:
            return
        jobs = slurm.jobs_on(self.names)
        for line in _lines(jobs, self.names, self.options):
            self.flow.operator.info(line)

    def show_waiting(self, slurm: SlurmState) -> None:
        """Refuse to continue while waiting jobs need the nodes, or show that they will be held."""
        jobs = slurm.waiting_for_leaving
        if not jobs:
            return
        lines = [f"  job {job.id} of {job.user} waits: {job.reason}" for job in jobs[:SHOWN_JOBS]]
        lines += [f"  and {len(jobs) - SHOWN_JOBS} more"] if len(jobs) > SHOWN_JOBS else []
        for line in lines:
            self.flow.operator.info(line)
        lost = [job for job in jobs if not (self.options.hold_waiting and job.can_be_held)]
        if lost:
            listed = ", ".join(f"{job.id} ({job.user})" for job in lost[:SHOWN_JOBS])
            more = f" and {len(lost) - SHOWN_JOBS} more" if len(lost) > SHOWN_JOBS else ""
            instead = f"; `deepopsctl node {self.verb} {fold(self.names)} --hold-waiting` holds them instead"
            raise StoppedError(
                f"nothing was {self.verb}d: without {fold(self.names)} Slurm would end waiting jobs, or never start "
                f"them: {listed}{more}",
                "let them run first, have their users change them (scontrol update jobid=NUMBER reqnodelist=...), or "
                f"cancel them{instead if all(job.can_be_held for job in lost) else ''}",
            )
        self.flow.operator.info(f"{len(jobs)} waiting job{'s' * (len(jobs) > 1)}: held until released (--hold-waiting)")

    def drain(self) -> None:
        """Let no new job start; with --force, cancel running jobs."""
        if self.names:
            self.flow.operator.info(f"drain {fold(self.names)}")
            self._drain(force=self.options.force)

    def wait(self) -> None:
        """Wait until no job is left, or until the timeout: then the nodes stay drained and nothing else was done."""
        if self.names and not self.options.force:
            self.flow.idle(self._wait)

    def require_no_jobs(self) -> None:
        """Drain again: someone may have resumed the nodes meanwhile."""
        if self.names and (left := self._drain(force=False)):
            raise self._late(left)

    def _drain(self, *, force: bool) -> tuple[SlurmJob, ...]:
        how = {"deepops_drain_reason": encode_reason(f"node {self.verb}"), "deepops_cancel_jobs": force}
        outcome = self.flow.set_node_state(self.cluster, "out_of_service", self.names, **how)
        stands = f"{fold(self.names)} may be drained; nothing else was changed"
        require_success(outcome, self.cluster.controllers[:1], stands, self._back)
        return state_of(outcome).jobs_on(self.names)

    def _wait(self) -> None:
        left: list[tuple[SlurmJob, ...]] = []

        def show_jobs(jobs: tuple[SlurmJob, ...]) -> None:
            left.append(jobs)
            self.flow.operator.info(
                f"  {job_words(jobs)} still there (Ctrl-C ends the wait, {fold(self.names)} stays drained)"
            )

        try:
            # 0 would be for ever
            wait_for_jobs(self.flow.base, self.names, max(self.options.timeout_s, 0.001), show_jobs)
        except RunTimeoutError as error:
            raise self._late(left[-1] if left else ()) from error

    def _late(self, jobs: Sequence[SlurmJob]) -> StoppedError:
        reason = f"{job_words(jobs)} still there" if jobs else "the controller did not answer"
        waited = "" if self.options.force else f" after {self.options.timeout_s} s"
        return StoppedError(
            f"nothing was {self.verb}d: {reason}{waited}; {fold(self.names)} stays drained, so that no new job starts",
            f"run the command again to go on waiting; {self._back}",
            ExitCode.TIMEOUT,
        )

    @property
    def _back(self) -> str:
        return f"`deepopsctl node resume {fold(self.names)}` ends the drain"


def job_words(jobs: Sequence[SlurmJob]) -> str:
    """`jobs 17 (alice), 18 (bob) are`."""
    words = [f"{job.id} ({job.user})" for job in jobs[:SHOWN_JOBS]]
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    return f"job{'s' * (len(jobs) > 1)} {', '.join(words)}{more} {'is' if len(jobs) == 1 else 'are'}"


def _lines(jobs: Sequence[SlurmJob], names: Sequence[str], options: DrainOptions) -> Iterator[str]:
    if not jobs:
        yield f"no job on {fold(names)}"
        return
    for job in jobs[:SHOWN_JOBS]:
        yield f"  job {job.id} of {job.user} {job.state.lower()} on {fold(job.nodes)}"
    if len(jobs) > SHOWN_JOBS:
        yield f"  and {len(jobs) - SHOWN_JOBS} more"
    whose = "it is" if len(jobs) == 1 else "they are"
    end = f"{whose} CANCELLED (--force)" if options.force else f"wait at most {options.timeout_s} s for their end"
    yield f"{len(jobs)} job{'s' * (len(jobs) > 1)} on {fold(names)}: {end}"

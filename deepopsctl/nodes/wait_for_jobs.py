"""Nodes without jobs, before anything is done to them: no new ones start, those that run go on to their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepopsctl.errors import ExitCode, RunTimeoutError
from deepopsctl.model.cluster import Cluster
from deepopsctl.nodes.drain import wait_for_jobs
from deepopsctl.nodes.workflow import Flow, StoppedError, glance, must_be_well
from deepopsctl.slurm.state import SlurmJob
from deepopsctl.text.node_sets import fold

SHOWN_JOBS = 8


@dataclass(frozen=True, slots=True)
class Leave:
    """What a person asked for: seconds to wait for jobs, and whether to cancel them instead."""

    names: str
    timeout_s: int
    force: bool = False


@dataclass(frozen=True, slots=True)
class Emptying:
    """The nodes, for which verb, and how long it may take."""

    flow: Flow
    cluster: Cluster
    names: Sequence[str]
    verb: str
    leave: Leave

    def show_jobs(self) -> None:
        """Which jobs are concerned, and what happens to them."""
        if not self.names:
            return
        jobs = self.flow.look(self.cluster).slurm.jobs_on(self.names)
        for line in _lines(jobs, self.names, self.leave):
            self.flow.operator.say(line)

    def drain(self) -> None:
        """Let no new job start; with --force, end those that run."""
        if self.names:
            self.flow.operator.say(f"drain {fold(self.names)}")
            self._vacate(force=self.leave.force)

    def wait(self) -> None:
        """Until no job is left there, or the time is up: then the nodes stay drained and nothing else was done."""
        if self.names and not self.leave.force:
            self.flow.idle(self._wait)

    def make_sure(self) -> None:
        """Nobody gave the nodes back meanwhile."""
        if self.names and (left := self._vacate(force=False)):
            raise self._late(left)

    def _vacate(self, *, force: bool) -> tuple[SlurmJob, ...]:
        how = {"membership_reason": f"node {self.verb}", "membership_timeout": 0, "membership_force": force}
        outcome = self.flow.membership(self.cluster, "vacate", self.names, **how)
        stands = f"{fold(self.names)} may be drained; nothing else was changed"
        must_be_well(outcome, self.cluster.controllers[:1], stands, self._back)
        return glance(outcome).slurm.jobs_on(self.names)

    def _wait(self) -> None:
        left: list[tuple[SlurmJob, ...]] = []

        def tell(jobs: tuple[SlurmJob, ...]) -> None:
            left.append(jobs)
            self.flow.operator.say(
                f"  {job_words(jobs)} still there (Ctrl-C ends the wait, {fold(self.names)} stays drained)"
            )

        try:
            # 0 would be for ever
            wait_for_jobs(self.flow.base, self.names, max(self.leave.timeout_s, 0.001), tell)
        except RunTimeoutError as error:
            raise self._late(left[-1] if left else ()) from error

    def _late(self, jobs: Sequence[SlurmJob]) -> StoppedError:
        told = f"{job_words(jobs)} still there" if jobs else "the controller did not answer"
        return StoppedError(
            f"nothing was {self.verb}d: {told} after {self.leave.timeout_s} s; "
            f"{fold(self.names)} stays drained, so that no new job starts",
            f"run the command again to go on waiting; {self._back}",
            ExitCode.TIMEOUT,
        )

    @property
    def _back(self) -> str:
        return f"`deepopsctl node resume {fold(self.names)}` takes the drain back"


def job_words(jobs: Sequence[SlurmJob]) -> str:
    """`jobs 17 (alice), 18 (bob) are`."""
    words = [f"{job.id} ({job.user})" for job in jobs[:SHOWN_JOBS]]
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    return f"job{'s' * (len(jobs) > 1)} {', '.join(words)}{more} {'is' if len(jobs) == 1 else 'are'}"


def _lines(jobs: Sequence[SlurmJob], names: Sequence[str], leave: Leave) -> Iterator[str]:
    if not jobs:
        yield f"no job on {fold(names)}"
        return
    for job in jobs[:SHOWN_JOBS]:
        yield f"  job {job.id} of {job.user} {job.state.lower()} on {fold(job.nodes)}"
    if len(jobs) > SHOWN_JOBS:
        yield f"  and {len(jobs) - SHOWN_JOBS} more"
    whose = "it is" if len(jobs) == 1 else "they are"
    end = f"{whose} CANCELLED (--force)" if leave.force else f"at most {leave.timeout_s} s are waited for their end"
    yield f"{len(jobs)} job{'s' * (len(jobs) > 1)} on {fold(names)}: {end}"

"""Wait for the jobs on nodes: queries of Slurm, and the pauses between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from deepopsctl.errors import DeepOpsError, RunTimeoutError
from deepopsctl.run.questions import SLURM_INFO
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmJob, SlurmState, state_in
from deepopsctl.text.node_sets import fold

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 20.0
SHOWN_JOBS = 8


@dataclass(slots=True)
class Wait:
    """Pauses between queries, short at first, because most waits are short; without `timeout_s`, for ever."""

    timeout_s: float | None = None
    _began: float = field(default_factory=time.monotonic)
    _pause_s: float = field(default_factory=lambda: FIRST_PAUSE_S)

    @property
    def is_over(self) -> bool:
        """Whether the timeout ends before the next pause does."""
        return self.timeout_s is not None and time.monotonic() + self._pause_s > self._began + self.timeout_s

    def pause(self) -> None:
        """Sleep; longer the next time."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)

    def hurry(self) -> None:
        """Short pauses again: something has changed."""
        self._pause_s = FIRST_PAUSE_S

    def restart(self) -> None:
        """The whole timeout again."""
        self._began = time.monotonic()
        self.hurry()


def slurm_now(request: RunRequest) -> SlurmState:
    """The state of Slurm as a wait queries it: `controller_up` says whether slurmctld answered."""
    from deepopsctl.run.runner import ask

    outcome = ask(replace(request, playbook=SLURM_INFO, more=(), command="node-wait", extra_vars={}))
    return state_in(result.data for result in outcome.summary.results)


def wait_for_jobs(
    request: RunRequest, names: Iterable[str], timeout: float | None, on_change: Callable[[tuple[SlurmJob, ...]], None]
) -> None:
    """Return when no job runs on the nodes; `on_change` is called with them whenever they change."""
    wanted, wait = tuple(names), Wait(timeout)
    reported: tuple[SlurmJob, ...] = ()
    while True:
        state = slurm_now(request)
        jobs = state.jobs_on(wanted)
        if state.controller_up and not jobs:
            return
        if jobs and jobs != reported:
            on_change(jobs)
            reported = jobs
        if wait.is_over:
            raise _late(timeout or 0, wanted, jobs, state)
        wait.pause()


def _late(timeout: float, names: Sequence[str], jobs: Sequence[SlurmJob], state: SlurmState) -> DeepOpsError:
    what = f"jobs {', '.join(job.id for job in jobs)} still run on {fold(names)}" if jobs else state.error
    return RunTimeoutError(
        f"after {timeout:g} s {what or 'the controller did not answer'}",
        "the nodes stay drained: wait again with the same command, or end the jobs with scancel",
    )


def job_words(jobs: Sequence[SlurmJob]) -> str:
    """`jobs 17 (alice), 18 (bob) are`."""
    words = [f"{job.id} ({job.user})" for job in jobs[:SHOWN_JOBS]]
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    return f"job{'s' * (len(jobs) > 1)} {', '.join(words)}{more} {'is' if len(jobs) == 1 else 'are'}"

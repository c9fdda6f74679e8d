"""The order of the smoke suite: what must come first, and what may run at the same time. On the submit host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ..._shared.checks import SKIP, Check
from . import (
    accounting,
    batch,
    clock,
    confinement,
    directories,
    gpus,
    mpi,
    node_answers,
    oversized_jobs,
    state,
    user_guide_examples,
)
from .context import Context, Inputs, skipped

# what is not tried when no node answers; a report says so instead of being silent
NEEDS_A_NODE = (
    "memory-confinement",
    "gpu-assignment",
    "gpu-confinement",
    "batch-output",
    "job-array",
    "guide-two-nodes",
    "guide-interactive",
    "guide-batch",
    "accounting-jobs",
    "accounting-array",
)


def _skipped_checks(inputs: Inputs) -> tuple[str, ...]:
    return NEEDS_A_NODE + ((directories.CHECK,) if inputs.directories else ()) + ((mpi.CHECK,) if inputs.mpi else ())


def run(context: Context) -> list[Check]:
    """All checks; the session's jobs are cancelled at the end, also after a failure."""
    inputs, snapshot, session = context
    checks = without_jobs(context)
    if not snapshot.answered:
        names = ("node-answers", *_skipped_checks(inputs))
        return checks + [skipped(name, inputs.cluster, "slurmctld does not answer") for name in names]
    try:
        return checks + _with_jobs(context)
    finally:
        session.close()


def without_jobs(context: Context) -> list[Check]:
    """Checks that need no job."""
    inputs, snapshot, session = context
    return [
        *state.controller_checks(inputs.cluster, snapshot),
        accounting.answers(inputs.cluster, snapshot.config, snapshot.answers["clusters"]),
        *clock.run(inputs),
        *state.run(inputs, snapshot, reserved=bool(session.reservation)),
        *([confinement.configured(snapshot.config, inputs.cluster)] if snapshot.answered else []),
    ]


def _with_jobs(context: Context) -> list[Check]:
    inputs = context.inputs
    with ThreadPoolExecutor(4) as pool:
        refused = pool.submit(oversized_jobs.run, context)
        checks, answers = node_answers.run(context)
        names = [name for name in inputs.tested if name in answers.lines]
        if not names:
            busy = all(what.status == SKIP for what in answers.troubles.values())
            reason = "no node has room for a job" if busy else "no node answered"
            checks += [skipped(name, inputs.cluster, reason) for name in _skipped_checks(inputs)]
            return checks + refused.result() + accounting.user_checks(context)
        jobs = node_answers.jobs_of(answers)
        memory = pool.submit(confinement.run_memory, context, names)
        checks += gpus.run(context, names, answers)
        checks += memory.result()
        checks += directories.run(context, names)
        checks += mpi.run(context, names)
        parts = [pool.submit(part.run, context, names) for part in (batch, user_guide_examples)]
        for part in parts:
            results, ran = part.result()
            checks, jobs = checks + results, jobs + ran
        return checks + refused.result() + accounting.run(context, jobs)

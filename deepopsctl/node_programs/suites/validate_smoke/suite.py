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
    environments,
    gpus,
    mpi,
    node_answers,
    oversized_jobs,
    site_guide,
    state,
    user_guide_examples,
)
from .context import Context, Trial, skipped

# Trials with jobs on the nodes that answered, in this order; those of one stage run at the same time.
# A new one is registered here: that it runs, and what is skipped where no node answers.
STAGES = (
    (
        Trial(confinement.verify_memory_limit, ["memory-confinement"]),
        Trial(gpus.verify_devices, gpus.CHECKS),
    ),
    (Trial(directories.verify_directories, [directories.CHECK], lambda inputs: bool(inputs.directories)),),
    (
        Trial(mpi.verify_openmpi, [mpi.OPENMPI.check], lambda inputs: mpi.OPENMPI.module in inputs.mpi),
        Trial(mpi.verify_mpich, [mpi.MPICH.check], lambda inputs: mpi.MPICH.module in inputs.mpi),
    ),
    (Trial(environments.verify_environments, [environments.CHECK], lambda inputs: bool(inputs.environments)),),
    (
        Trial(batch.verify_batch_jobs, ["batch-output", "job-array"]),
        Trial(user_guide_examples.verify_examples, ["guide-two-nodes", "guide-interactive", "guide-batch"]),
    ),
    # it may ask for a whole node
    (Trial(site_guide.verify_script, [site_guide.CHECK], lambda inputs: bool(inputs.guide_script)),),
)


def verify_cluster(context: Context) -> list[Check]:
    """All checks; the session's jobs are cancelled at the end, also after a failure."""
    checks = verify_without_jobs(context)
    if not context.snapshot.answered:
        reason = "slurmctld does not answer"
        return [*checks, skipped("node-answers", context.inputs.cluster, reason), *skipped_trials(context, reason)]
    try:
        return checks + _verify_with_jobs(context)
    finally:
        context.session.close()


def verify_without_jobs(context: Context) -> list[Check]:
    """Checks that need no job."""
    inputs, snapshot = context.inputs, context.snapshot
    return [
        *state.controller_checks(inputs.cluster, snapshot),
        accounting.answers(inputs.cluster, snapshot.config, snapshot.answers["clusters"]),
        *clock.verify_clocks(inputs),
        *state.verify_state(inputs, snapshot, reserved=bool(context.session.reservation)),
        *([confinement.configured(snapshot.config, inputs.cluster)] if snapshot.answered else []),
    ]


def skipped_trials(context: Context, reason: str) -> list[Check]:
    """What is not tried when no node answers; a report says so instead of being silent."""
    names = [name for stage in _wanted_stages(context) for trial in stage for name in trial.checks]
    return [skipped(name, context.inputs.cluster, reason) for name in (*names, *accounting.OF_JOBS)]


def _wanted_stages(context: Context) -> list[list[Trial]]:
    return [[trial for trial in stage if trial.wanted(context.inputs)] for stage in STAGES]


def _verify_with_jobs(context: Context) -> list[Check]:
    with ThreadPoolExecutor(4) as pool:
        refused = pool.submit(oversized_jobs.verify_refusals, context)
        checks, answers = node_answers.verify_nodes(context)
        context = context._replace(answers=answers, jobs=node_answers.jobs_of(answers))
        if not context.names:
            busy = all(what.status == SKIP for what in answers.troubles.values())
            checks += skipped_trials(context, "no node has room for a job" if busy else "no node answered")
            return checks + refused.result() + accounting.verify_user(context)
        for stage in _wanted_stages(context):
            running = [pool.submit(trial.verify, context) for trial in stage]
            checks += [check for done in running for check in done.result()]
        return checks + refused.result() + accounting.verify_records(context)

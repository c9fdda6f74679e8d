"""How the plan of an upgrade is shown."""

from __future__ import annotations

from collections.abc import Iterator

from deepopsctl.lifecycle.upgrade_plan import Plan
from deepopsctl.text.node_sets import fold


def plan_lines(plan: Plan) -> Iterator[str]:
    """Refusals first: with one, nothing of the rest happens."""
    for message, hint in plan.refusals:
        yield f"refused: {message}"
        yield f"  {hint}"
    yield f"Slurm {plan.installed or '?'} -> {plan.version or plan.wanted.release}"
    if not plan.todo:
        yield "all nodes that answer have it"
    if plan.center:
        yield f"slurmdbd and slurmctld: {fold(plan.center)}"
    if plan.login:
        yield f"login nodes: {fold(plan.login)}"
    for number, batch in enumerate(plan.batches, 1):
        jobs = [job for job in plan.jobs if not set(batch).isdisjoint(job.nodes)]
        word = "waits for" if plan.wanted.drain else "under"
        yield f"batch {number}: {fold(batch)}" + (f", {word} {len(jobs)} running jobs" if jobs else "")
    for note in plan.notes:
        yield f"note: {note}"

"""How the plan of an upgrade is shown."""

from __future__ import annotations

from collections.abc import Iterator

from deepopsctl.lifecycle.os_plan import OsFacts, OsPlan, Versions
from deepopsctl.lifecycle.upgrade_nvidia import NvidiaPlan
from deepopsctl.lifecycle.upgrade_plan import Plan
from deepopsctl.nodes.wait_for_jobs import job_words
from deepopsctl.nodes.workflow import SILENT
from deepopsctl.text.amounts import amount
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
        yield f"batch {number}: {fold(batch)}" + (f", {word} {amount(len(jobs), 'running job')}" if jobs else "")
    for note in plan.notes:
        yield f"note: {note}"


# packages that are listed one by one
SHOWN_PACKAGES = 30


def os_plan_lines(plan: OsPlan) -> Iterator[str]:
    """Packages of nodes with the same ones together, then which nodes come when."""
    for names, facts in plan.groups:
        yield f"{fold(names)}:"
        yield from _package_lines(facts)
    if plan.compute.begun:
        yield f"begun by an earlier call, continues first: {fold(plan.compute.begun)}"
    if plan.idle:
        yield f"idle, at once: {fold(plan.idle)}"
    if plan.busy:
        yield f"after their jobs: {fold(plan.busy)}; {job_words(plan.slurm.jobs_on(plan.busy))} there"
    if plan.others:
        yield f"at the end, one after the other, without a reboot: {', '.join(plan.others)}"
    for name, why in {**plan.compute.left_alone, **plan.silent}.items():
        yield f"left out: {name}: {why}"
    if not plan.todo:
        yield "nothing to do"


def nvidia_plan_lines(plan: NvidiaPlan) -> Iterator[str]:
    """Refusals first, then the exchanges of nodes with the same ones together."""
    for host, (message, hint) in plan.refusals.items():
        yield f"refused: {host}: {message}"
        yield f"  {hint}"
    names_by_packages: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, packages in plan.exchanges.items():
        names_by_packages.setdefault(tuple(packages.items()), []).append(name)
    for exchanged, names in names_by_packages.items():
        yield f"{fold(names)}:"
        yield from (f"  {package} {detail}" for package, detail in exchanged)
    if plan.busy:
        yield f"after their jobs: {fold(plan.busy)}; {job_words(plan.slurm.jobs_on(plan.busy))} there"
    for name, why in {**plan.compute.left_alone, **dict.fromkeys(plan.silent, SILENT)}.items():
        yield f"left out: {name}: {why}"
    if not plan.todo:
        yield "nothing to do"


def _package_lines(facts: OsFacts) -> Iterator[str]:
    yield from _versions("", facts.packages)
    yield from _versions("held, stays: ", facts.held)
    yield from _versions("has its own command, stays: ", facts.left)
    if facts.kept_back:
        yield f"  apt would have to remove packages, stays: {' '.join(facts.kept_back)}"
    if facts.will_reboot:
        yield f"  reboot: {facts.will_reboot}"


def _versions(what: str, packages: Versions) -> Iterator[str]:
    for name, (before, after) in list(packages.items())[:SHOWN_PACKAGES]:
        yield f"  {what}{name} {before or '(new)'} -> {after}"
    if len(packages) > SHOWN_PACKAGES:
        yield f"  {what}and {amount(len(packages) - SHOWN_PACKAGES, 'more package')}"

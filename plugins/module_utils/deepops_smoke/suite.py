"""The smoke suite as a whole: ask Slurm, run the jobs, judge. Everything here runs on the submit host as the user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import List, Sequence

from . import (
    across,
    clock,
    confinement,
    directories,
    gpus,
    guide,
    overask,
    placement,
    state,
)
from .accounting import Job
from .across import Answers
from .inputs import Inputs
from .picture import Picture
from .session import Session
from .verdict import FAIL, PASS, Verdict, skipped, verdict


def without_jobs(inputs: Inputs, picture: Picture) -> List[Verdict]:
    """Checks that need no job: answers of controller and database, clocks, state and counts."""
    checks = picture.controller_checks(inputs.cluster) + clocks(inputs)
    if not picture.answered:
        reason = "slurmctld does not answer"
        found = [skipped("node-state", name, reason) for name in inputs.tested]
        return [*checks, *found, *(skipped("partition", entry.name, reason) for entry in inputs.partitions)]
    wanted = {name: node for name, node in inputs.wanted.items() if name in inputs.tested}
    checks += state.node_checks(wanted, picture.nodes, inputs.reports)
    checks += state.partition_checks(inputs.partitions, picture.partitions, picture.nodes)
    checks += versions(inputs, picture)
    return [*checks, confinement.configured(picture.config, inputs.cluster)]


def versions(inputs: Inputs, picture: Picture) -> List[Verdict]:
    """Every compute node runs the Slurm version of its controller."""
    want = picture.config.get("SLURM_VERSION", "")
    found = []
    for name in inputs.tested:
        has = str(inputs.reports.get(name, {}).get("slurm_version", ""))
        if has and want:
            text = "" if has == want else "slurmd differs from the controller"
            found.append(verdict("slurm-version", name, PASS if has == want else FAIL, has, want, message=text))
    return found


def clocks(inputs: Inputs) -> List[Verdict]:
    """The lead of every reporting node's clock over the submit host's."""
    reference = clock.offset(inputs.reports.get(inputs.submit, {}).get("clock") or {})
    found = []
    for name, report in inputs.reports.items():
        own = clock.offset(report.get("clock") or {})
        lead = clock.between(own, reference) if own and reference else None
        if name != inputs.submit:
            missing = "" if reference else "no reading of {}'s clock: is it outside --limit?".format(inputs.submit)
            found.append(clock.judge(name, lead, inputs.submit, missing))
    return found


def over_asking(inputs: Inputs, picture: Picture, session: Session) -> List[Verdict]:
    """Impossible requests to the default partition, all at once."""
    name = picture.default_partition()
    if not name:
        return [skipped("over-ask-nodes", inputs.cluster, "no default partition")]
    members = [node for node in picture.nodes.values() if name in node.get("Partitions", "").split(",")]
    wanted = overask.requests(picture.partitions[name], members)

    def attempt(request: overask.Request) -> Verdict:
        if request.reason:
            return overask.judge(request, name, None, picture.config)
        options = ["--partition=" + name, "--output=/dev/null", *request.options]
        answer = session.sbatch("over-" + request.what, options, "#!/bin/sh\ntrue\n")
        pending = ""
        if answer.rc == 0:
            pending = session.pending_reason(answer.out)
            session.cancel([answer.out])
        return overask.judge(request, name, answer, picture.config, pending)

    with ThreadPoolExecutor(len(wanted)) as pool:
        return list(pool.map(attempt, wanted))


def memory(picture: Picture, session: Session, names: Sequence[str]) -> List[Verdict]:
    """Jobs that take more memory than they asked for, on every node that answered."""
    if not confinement.uses_cgroups(picture.config):
        return [skipped("memory-confinement", name, confinement.NOT_CONFIGURED) for name in names]
    answers = across.ask(
        session,
        "memory",
        placement.place(names, picture.nodes, picture.partitions),
        across.argv("memory", str(confinement.TRY_MB)),
        extra=["--kill-on-bad-exit=0"],
    )
    checks = []
    for name in names:
        if name in answers.lines:
            checks.append(confinement.memory(name, answers.lines[name], answers.said))
        else:
            what = answers.troubles[name]
            checks.append(verdict("memory-confinement", name, what.status, message=what.message))
    return checks


def job_directories(inputs: Inputs, picture: Picture, session: Session, names: Sequence[str]) -> List[Verdict]:
    """Two jobs at once on every node, where cluster.yml gives jobs folders of their own."""
    if not inputs.directories:
        return []
    return directories.run(session, names, picture.nodes, picture.partitions, inputs.directories)


def gpu_jobs(picture: Picture, session: Session, names: Sequence[str], answers: Answers) -> List[Verdict]:
    """Two jobs with a GPU at once on every GPU node: different devices, and no way to the others."""
    with_gpus = [name for name in names if picture.gpus(name)]
    free = [name for name in with_gpus if placement.free_gpus(picture.nodes[name]) > 0]
    pair = gpus.run_all(session, free, picture.nodes, picture.partitions)
    checks = []
    confined = confinement.uses_cgroups(picture.config)
    for name in with_gpus:
        if name not in free:
            checks += [skipped(check, name, "busy: no GPU is free") for check in ("gpu-assignment", "gpu-confinement")]
            continue
        checks.append(gpus.judge(name, pair, picture.gpus(name)))
        lines = pair.first.lines.get(name)
        if not lines:
            checks.append(skipped("gpu-confinement", name, "no job with a GPU ran here"))
        elif not confined:
            checks.append(skipped("gpu-confinement", name, confinement.NOT_CONFIGURED))
        else:
            checks.append(confinement.gpus(name, lines[0]["gpus"], answers.lines[name][0]["gpus"]))
    return checks


def guide_examples(
    inputs: Inputs, picture: Picture, session: Session, names: Sequence[str]
) -> "tuple[List[Verdict], List[Job]]":
    """The users' guide's examples, one after the other: as printed, each may take a whole node's memory."""
    usable = [name for name in names if placement.free_gpus(picture.nodes[name]) > 0]
    where = guide.place(picture.partitions, picture.nodes, usable)
    if where is None:
        reason = "no GPU is free" if any(picture.gpus(name) for name in picture.nodes) else "the cluster has no GPUs"
        return guide.no_gpus(inputs.cluster, reason), []
    checks = [guide.two_nodes(session, where, inputs.reports), guide.interactive(session, where)]
    script = guide.place(picture.partitions, picture.nodes, usable, wanted=guide.PRINTED["partition"]) or where
    last, jobs = guide.batch_script(session, script)
    return [*checks, last], jobs

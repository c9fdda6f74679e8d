"""The smoke suite as a whole: query Slurm, run the jobs, evaluate. Runs on the submit host as the user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import List, Sequence

from . import (
    clock,
    confinement,
    directories,
    gpus,
    job_placement,
    oversized_jobs,
    probe_jobs,
    state,
    user_guide_examples,
)
from .accounting import Job
from .checks import FAIL, PASS, Check, check, skipped
from .inputs import Inputs
from .probe_jobs import Answers
from .session import Session
from .slurm_snapshot import SlurmSnapshot


def without_jobs(inputs: Inputs, snapshot: SlurmSnapshot) -> List[Check]:
    """Checks that need no job: answers of controller and database, clocks, state and counts."""
    checks = snapshot.controller_checks(inputs.cluster) + clocks(inputs)
    if not snapshot.answered:
        reason = "slurmctld does not answer"
        unknown = [skipped("node-state", name, reason) for name in inputs.tested]
        return [*checks, *unknown, *(skipped("partition", entry.name, reason) for entry in inputs.partitions)]
    wanted = {name: node for name, node in inputs.wanted.items() if name in inputs.tested}
    checks += state.node_checks(wanted, snapshot.nodes, inputs.reports)
    checks += state.partition_checks(inputs.partitions, snapshot.partitions, snapshot.nodes)
    checks += versions(inputs, snapshot)
    return [*checks, confinement.configured(snapshot.config, inputs.cluster)]


def versions(inputs: Inputs, snapshot: SlurmSnapshot) -> List[Check]:
    """Every compute node runs the Slurm version of its controller."""
    want = snapshot.config.get("SLURM_VERSION", "")
    checks = []
    for name in inputs.tested:
        has = str(inputs.reports.get(name, {}).get("slurm_version", ""))
        if has and want:
            text = "" if has == want else "slurmd differs from the controller"
            checks.append(check("slurm-version", name, PASS if has == want else FAIL, has, want, message=text))
    return checks


def clocks(inputs: Inputs) -> List[Check]:
    """The lead of every reporting node's clock over the submit host's."""
    reference = clock.offset(inputs.reports.get(inputs.submit, {}).get("clock") or {})
    checks = []
    for name, report in inputs.reports.items():
        own = clock.offset(report.get("clock") or {})
        lead = clock.between(own, reference) if own and reference else None
        if name != inputs.submit:
            missing = "" if reference else "no reading of {}'s clock: is it outside --limit?".format(inputs.submit)
            checks.append(clock.evaluate(name, lead, inputs.submit, missing))
    return checks


def over_asking(inputs: Inputs, snapshot: SlurmSnapshot, session: Session) -> List[Check]:
    """Impossible requests to the default partition, all at once."""
    name = snapshot.default_partition()
    if not name:
        return [skipped("over-ask-nodes", inputs.cluster, "no default partition")]
    members = [node for node in snapshot.nodes.values() if name in node.get("Partitions", "").split(",")]
    wanted = oversized_jobs.requests(snapshot.partitions[name], members)

    def attempt(request: oversized_jobs.Request) -> Check:
        if request.reason:
            return oversized_jobs.evaluate(request, name, None, snapshot.config)
        options = ["--partition=" + name, "--output=/dev/null", *request.options]
        answer = session.sbatch("over-" + request.what, options, "#!/bin/sh\ntrue\n")
        pending = ""
        if answer.rc == 0:
            pending = session.pending_reason(answer.out)
            session.cancel([answer.out])
        return oversized_jobs.evaluate(request, name, answer, snapshot.config, pending)

    with ThreadPoolExecutor(len(wanted)) as pool:
        return list(pool.map(attempt, wanted))


def memory(snapshot: SlurmSnapshot, session: Session, names: Sequence[str]) -> List[Check]:
    """Jobs that take more memory than they asked for, on every node that answered."""
    if not confinement.uses_cgroups(snapshot.config):
        return [skipped("memory-confinement", name, confinement.NOT_CONFIGURED) for name in names]
    answers = probe_jobs.ask(
        session,
        "memory",
        job_placement.place(names, snapshot.nodes, snapshot.partitions),
        probe_jobs.argv("memory", str(confinement.TRY_MB)),
        extra=["--kill-on-bad-exit=0"],
    )
    checks = []
    for name in names:
        if name in answers.lines:
            checks.append(confinement.memory(name, answers.lines[name], answers.stderr))
        else:
            what = answers.troubles[name]
            checks.append(check("memory-confinement", name, what.status, message=what.message))
    return checks


def job_directories(inputs: Inputs, snapshot: SlurmSnapshot, session: Session, names: Sequence[str]) -> List[Check]:
    """Two jobs at once on every node, where cluster.yml gives jobs private directories."""
    if not inputs.directories:
        return []
    return directories.run(session, names, snapshot.nodes, snapshot.partitions, inputs.directories)


def gpu_jobs(snapshot: SlurmSnapshot, session: Session, names: Sequence[str], answers: Answers) -> List[Check]:
    """Two jobs with a GPU at once on every GPU node: different devices, and no way to the others."""
    with_gpus = [name for name in names if snapshot.gpus(name)]
    free = [name for name in with_gpus if job_placement.free_gpus(snapshot.nodes[name]) > 0]
    pair = gpus.run_all(session, free, snapshot.nodes, snapshot.partitions)
    checks = []
    confined = confinement.uses_cgroups(snapshot.config)
    for name in with_gpus:
        if name not in free:
            checks += [skipped(check, name, "busy: no GPU is free") for check in ("gpu-assignment", "gpu-confinement")]
            continue
        checks.append(gpus.evaluate(name, pair, snapshot.gpus(name)))
        lines = pair.first.lines.get(name)
        if not lines:
            checks.append(skipped("gpu-confinement", name, "no job with a GPU ran here"))
        elif not confined:
            checks.append(skipped("gpu-confinement", name, confinement.NOT_CONFIGURED))
        else:
            checks.append(confinement.gpus(name, lines[0]["gpus"], answers.lines[name][0]["gpus"]))
    return checks


def guide_examples(
    inputs: Inputs, snapshot: SlurmSnapshot, session: Session, names: Sequence[str]
) -> "tuple[List[Check], List[Job]]":
    """The users' guide's examples, one after the other: as printed, each may take a whole node's memory."""
    usable = [name for name in names if job_placement.free_gpus(snapshot.nodes[name]) > 0]
    where = user_guide_examples.place(snapshot.partitions, snapshot.nodes, usable)
    if where is None:
        reason = "no GPU is free" if any(snapshot.gpus(name) for name in snapshot.nodes) else "the cluster has no GPUs"
        return user_guide_examples.no_gpus(inputs.cluster, reason), []
    checks = [
        user_guide_examples.two_nodes(session, where, inputs.reports),
        user_guide_examples.interactive(session, where),
    ]
    script = (
        user_guide_examples.place(
            snapshot.partitions, snapshot.nodes, usable, wanted=user_guide_examples.PRINTED["partition"]
        )
        or where
    )
    last, jobs = user_guide_examples.batch_script(session, script)
    return [*checks, last], jobs

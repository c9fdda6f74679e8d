"""The smoke suite as a whole: ask Slurm, run the jobs, judge. Everything here runs on the submit host as the user."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from . import (
    across,
    clock,
    confinement,
    expected,
    gpus,
    guide,
    munge,
    overask,
    placement,
    state,
)
from .accounting import Job
from .across import Answers
from .picture import Picture
from .session import Session
from .verdict import FAIL, PASS, SKIP, Verdict, skipped, verdict

Reports = Mapping[str, Mapping[str, Any]]


class Inputs(NamedTuple):
    """What the playbook hands over. `reports` are the nodes' own, by name; `tested` the nodes to test."""

    cluster: str
    submit: str
    user: str
    tested: Sequence[str]
    reports: Reports
    wanted: Dict[str, expected.Node]
    partitions: List[expected.Partition]


def without_jobs(inputs: Inputs, picture: Picture) -> List[Verdict]:
    """Checks that need no job: the controller's and the database's answers, state and counts, clocks, over-asking."""
    wanted = {name: node for name, node in inputs.wanted.items() if name in inputs.tested}
    checks = picture.controller_checks(inputs.cluster)
    checks += state.node_checks(wanted, picture.nodes, inputs.reports)
    checks += state.partition_checks(inputs.partitions, picture.partitions, picture.nodes)
    checks += versions(inputs, picture)
    checks += clocks(inputs)
    checks.append(confinement.configured(picture.config, inputs.cluster))
    return checks


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
            found.append(clock.judge(name, lead, inputs.submit))
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
        if answer.rc == 0:
            session.cancel([answer.out])
        return overask.judge(request, name, answer, picture.config)

    with ThreadPoolExecutor(len(wanted)) as pool:
        return list(pool.map(attempt, wanted))


def answering(inputs: Inputs, picture: Picture, session: Session) -> "tuple[List[Verdict], Answers]":
    """One small job on every node that has room: does it answer, is it confined to its core, does munge fit."""
    obstacles = picture.obstacles(inputs.tested)
    ready = [name for name in inputs.tested if name in picture.nodes and not obstacles.get(name)]
    suspect = [name for name in ready if inputs.reports.get(name, {}).get("slurmd_active") is False]
    sound = [name for name in ready if name not in suspect]
    credential = munge.encode()
    answers = across.ask(
        session,
        "answer",
        placement.place(sound, picture.nodes, picture.partitions),
        across.argv("answer", credential["credential"]),
        alone=[entry for name in suspect for entry in placement.place([name], picture.nodes, picture.partitions)],
    )
    checks = []
    for name in inputs.tested:
        checks += _answer_checks(
            inputs, name, answers, obstacles.get(name, ""), confinement.uses_cgroups(picture.config)
        )
    return checks, answers


def _answer_checks(inputs: Inputs, name: str, answers: Answers, obstacle: str, confined: bool) -> List[Verdict]:
    made, there = inputs.reports.get(name, {}).get("munge"), ""
    checks: List[Verdict] = []
    if obstacle or name not in answers.lines:
        what = answers.troubles.get(name, across.Trouble(SKIP, obstacle or "Slurm does not know this node"))
        checks.append(
            verdict(
                "node-answers",
                name,
                what.status,
                "no answer" if what.status == FAIL else "",
                name,
                message=what.message,
            )
        )
        checks.append(skipped("cpu-confinement", name, "no job ran here"))
    else:
        data = answers.lines[name][0]
        there = str(data.get("munge", ""))
        host = str(data.get("host", "")).split(".")[0]
        checks.append(verdict("node-answers", name, PASS, host, name))
        checks.append(
            confinement.cores(name, data["cpus"])
            if confined
            else skipped("cpu-confinement", name, "TaskPlugin has no task/cgroup")
        )
    if made is None:
        checks.append(munge.not_tried(name))
    else:
        here = munge.decode(made["credential"]) if made.get("credential") else ""
        checks.append(munge.across(name, made, here, there, inputs.submit))
    return checks


def memory(picture: Picture, session: Session, names: Sequence[str]) -> List[Verdict]:
    """Jobs that take more memory than they asked for, on every node that answered."""
    if not confinement.uses_cgroups(picture.config):
        return [skipped("memory-confinement", name, "TaskPlugin has no task/cgroup") for name in names]
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


def gpu_jobs(picture: Picture, session: Session, names: Sequence[str], answers: Answers) -> List[Verdict]:
    """Two jobs with a GPU at once on every GPU node: different devices, and no way to the others."""
    with_gpus = [name for name in names if picture.gpus(name)]
    free = [name for name in with_gpus if placement.free_gpus(picture.nodes[name]) > 0]
    jobs = gpus.places(free, picture.nodes, picture.partitions)
    if not jobs:
        return [skipped("gpu-assignment", name, "busy: no GPU is free") for name in with_gpus]
    with ThreadPoolExecutor(len(jobs)) as pool:
        pair = gpus.merge(
            list(pool.map(lambda job: gpus.run_pair(session, job[0], job[1][0], job[1][1]), enumerate(jobs)))
        )
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
            checks.append(skipped("gpu-confinement", name, "TaskPlugin has no task/cgroup"))
        else:
            checks.append(confinement.gpus(name, lines[0]["gpus"], answers.lines[name][0]["gpus"]))
    return checks


def guide_examples(
    inputs: Inputs, picture: Picture, session: Session, names: Sequence[str]
) -> "tuple[List[Verdict], List[Job]]":
    """The users' guide's examples, one after the other: as printed, each may take a whole node's memory."""
    nodes = [picture.nodes[name] for name in names if placement.free_gpus(picture.nodes[name]) > 0]
    where = guide.place(picture.partitions, nodes)
    if where is None:
        reason = "no GPU is free" if any(picture.gpus(name) for name in picture.nodes) else "the cluster has no GPUs"
        return guide.no_gpus(inputs.cluster, reason), []
    checks = [guide.two_nodes(session, where, inputs.reports), guide.interactive(session, where)]
    script = guide.place(picture.partitions, nodes, wanted=guide.PRINTED["partition"]) or where
    last, jobs = guide.batch_script(session, script)
    return [*checks, last], jobs

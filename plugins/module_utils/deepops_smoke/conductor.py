"""The order of the smoke suite: what must come first, and what may run at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import List, Sequence, Tuple

from . import accounting, answering, batch, command, directories, picture, placement, suite
from .accounting import Job
from .across import Answers
from .inputs import Inputs
from .picture import Picture
from .session import Session
from .verdict import SKIP, Verdict, skipped

Part = Tuple[List[Verdict], List[Job]]
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


def _untried(inputs: Inputs) -> Tuple[str, ...]:
    return NEEDS_A_NODE + ((directories.CHECK,) if inputs.directories else ())


def run(inputs: Inputs, session: Session) -> List[Verdict]:
    """All checks of the submit host; the session's jobs are cancelled at the end, also after a failure."""
    seen = picture.take()
    checks = suite.without_jobs(inputs, seen)
    if not seen.answered:
        return checks + [
            skipped(name, inputs.cluster, "slurmctld does not answer") for name in ("node-answers", *_untried(inputs))
        ]
    try:
        return checks + _with_jobs(inputs, seen, session)
    finally:
        session.close()


def _with_jobs(inputs: Inputs, seen: Picture, session: Session) -> List[Verdict]:
    with ThreadPoolExecutor(4) as pool:
        refused = pool.submit(suite.over_asking, inputs, seen, session)
        checks, answers = answering.run(inputs, seen, session)
        names = [name for name in inputs.tested if name in answers.lines]
        if not names:
            busy = all(what.status == SKIP for what in answers.troubles.values())
            reason = "no node has room for a job" if busy else "no node answered"
            checks += [skipped(name, inputs.cluster, reason) for name in _untried(inputs)]
            return checks + refused.result() + _association(inputs, seen)
        jobs = _joint_jobs(answers)
        memory = pool.submit(suite.memory, seen, session, names)
        checks += suite.gpu_jobs(seen, session, names, answers)
        checks += memory.result()
        checks += suite.job_directories(inputs, seen, session, names)
        parts = [
            pool.submit(_batch, seen, session, names),
            pool.submit(suite.guide_examples, inputs, seen, session, names),
        ]
        for part in parts:
            found, ran = part.result()
            checks, jobs = checks + found, jobs + ran
        return checks + refused.result() + accounts(inputs, seen, jobs)


def _joint_jobs(answers: Answers) -> List[Job]:
    """The jobs that nodes answered in, where every node of them did."""
    ids = sorted({str(lines[0].get("job", "")) for lines in answers.lines.values()})
    return [Job(identifier, "node-answers") for identifier in ids if identifier and not answers.troubles]


def _batch(seen: Picture, session: Session, names: Sequence[str]) -> Part:
    def room(name: str) -> int:
        node = seen.nodes[name]
        return int(node.get("CPUTot", "0")) - int(node.get("CPUAlloc", "0"))

    best = max(names, key=room)
    return batch.run(session, best, placement.choose(seen.nodes[best], seen.partitions))


def _association(inputs: Inputs, seen: Picture) -> List[Verdict]:
    if not accounting.is_on(seen.config):
        return [skipped("accounting-association", inputs.cluster, "the cluster keeps no accounting")]
    where = ["user=" + inputs.user, "cluster=" + seen.config.get("ClusterName", inputs.cluster)]
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", "where", *where, "format=account"]
    return [accounting.association(inputs.cluster, inputs.user, command.run(argv))]


def accounts(inputs: Inputs, seen: Picture, jobs: Sequence[Job]) -> List[Verdict]:
    """What the accounting database says about the user and about the jobs that just ran."""
    checks = _association(inputs, seen)
    names = ("accounting-jobs", "accounting-array")
    if not accounting.is_on(seen.config):
        return checks + [skipped(name, inputs.cluster, "the cluster keeps no accounting") for name in names]
    if not jobs:
        return checks + [skipped(name, inputs.cluster, "no job ran to its end") for name in names]
    # no patience with a database that does not answer at all
    up = seen.answers["clusters"].rc == 0
    answer = accounting.fetch(jobs, patience=accounting.RETRY_S if up else 0)
    known = [account for account in checks[0]["measured"].split(", ") if checks[0]["status"] == "pass"]
    return checks + accounting.judge(inputs.cluster, jobs, answer, inputs.user, known)

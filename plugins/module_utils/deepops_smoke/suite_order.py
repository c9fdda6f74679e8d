"""The order of the smoke suite: what must come first, and what may run at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import List, Sequence, Tuple

from . import accounting, batch, command, directories, job_placement, node_answers, slurm_snapshot, suite
from .accounting import Job
from .checks import SKIP, Check, skipped
from .inputs import Inputs
from .probe_jobs import Answers
from .session import Session
from .slurm_snapshot import SlurmSnapshot

Part = Tuple[List[Check], List[Job]]
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


def _skipped_checks(inputs: Inputs) -> Tuple[str, ...]:
    return NEEDS_A_NODE + ((directories.CHECK,) if inputs.directories else ())


def run(inputs: Inputs, session: Session) -> List[Check]:
    """All checks of the submit host; the session's jobs are cancelled at the end, also after a failure."""
    snapshot = slurm_snapshot.read_snapshot()
    checks = suite.without_jobs(inputs, snapshot)
    if not snapshot.answered:
        return checks + [
            skipped(name, inputs.cluster, "slurmctld does not answer")
            for name in ("node-answers", *_skipped_checks(inputs))
        ]
    try:
        return checks + _with_jobs(inputs, snapshot, session)
    finally:
        session.close()


def _with_jobs(inputs: Inputs, snapshot: SlurmSnapshot, session: Session) -> List[Check]:
    with ThreadPoolExecutor(4) as pool:
        refused = pool.submit(suite.over_asking, inputs, snapshot, session)
        checks, answers = node_answers.run(inputs, snapshot, session)
        names = [name for name in inputs.tested if name in answers.lines]
        if not names:
            busy = all(what.status == SKIP for what in answers.troubles.values())
            reason = "no node has room for a job" if busy else "no node answered"
            checks += [skipped(name, inputs.cluster, reason) for name in _skipped_checks(inputs)]
            return checks + refused.result() + _association(inputs, snapshot)
        jobs = _joint_jobs(answers)
        memory = pool.submit(suite.memory, snapshot, session, names)
        checks += suite.gpu_jobs(snapshot, session, names, answers)
        checks += memory.result()
        checks += suite.job_directories(inputs, snapshot, session, names)
        parts = [
            pool.submit(_batch, snapshot, session, names),
            pool.submit(suite.guide_examples, inputs, snapshot, session, names),
        ]
        for part in parts:
            results, ran = part.result()
            checks, jobs = checks + results, jobs + ran
        return checks + refused.result() + accounts(inputs, snapshot, jobs)


def _joint_jobs(answers: Answers) -> List[Job]:
    """The jobs that nodes answered in, where every node of them did."""
    ids = sorted({str(lines[0].get("job", "")) for lines in answers.lines.values()})
    return [Job(identifier, "node-answers") for identifier in ids if identifier and not answers.troubles]


def _batch(snapshot: SlurmSnapshot, session: Session, names: Sequence[str]) -> Part:
    def room(name: str) -> int:
        node = snapshot.nodes[name]
        return int(node.get("CPUTot", "0")) - int(node.get("CPUAlloc", "0"))

    best = max(names, key=room)
    return batch.run(session, best, job_placement.choose(snapshot.nodes[best], snapshot.partitions))


def _association(inputs: Inputs, snapshot: SlurmSnapshot) -> List[Check]:
    if not accounting.is_on(snapshot.config):
        return [skipped("accounting-association", inputs.cluster, "the cluster keeps no accounting")]
    where = ["user=" + inputs.user, "cluster=" + snapshot.config.get("ClusterName", inputs.cluster)]
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", "where", *where, "format=account"]
    return [accounting.association(inputs.cluster, inputs.user, command.run(argv))]


def accounts(inputs: Inputs, snapshot: SlurmSnapshot, jobs: Sequence[Job]) -> List[Check]:
    """What the accounting database says about the user and about the jobs that just ran."""
    checks = _association(inputs, snapshot)
    names = ("accounting-jobs", "accounting-array")
    if not accounting.is_on(snapshot.config):
        return checks + [skipped(name, inputs.cluster, "the cluster keeps no accounting") for name in names]
    if not jobs:
        return checks + [skipped(name, inputs.cluster, "no job ran to its end") for name in names]
    # no patience with a database that does not answer at all
    up = snapshot.answers["clusters"].rc == 0
    answer = accounting.fetch(jobs, patience=accounting.RETRY_S if up else 0)
    known = [account for account in checks[0]["measured"].split(", ") if checks[0]["status"] == "pass"]
    return checks + accounting.evaluate(inputs.cluster, jobs, answer, inputs.user, known)

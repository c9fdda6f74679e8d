"""GPUs given to jobs: two jobs at once on every GPU node must get different devices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from . import job_placement, probe, probe_jobs
from .checks import PASS, Check, check, failed, skipped
from .job_placement import Placement
from .probe_jobs import Answers, Data
from .session import Session
from .slurmtext import Record

DENIED = ("EPERM", "EACCES")


class Pair(NamedTuple):
    """Answers of two jobs that overlapped in time, by node."""

    first: Answers
    second: Answers


def device(data: Mapping[str, Any]) -> str:
    """Which GPUs of the node a job got: Slurm's own index, else the device files it could open."""
    assigned = data.get("env", {}).get("SLURM_STEP_GPUS") or data.get("env", {}).get("SLURM_JOB_GPUS")
    if assigned:
        return str(assigned)
    opened = sorted(name for name, result in data.get("gpus", {}).items() if result not in DENIED)
    return ",".join(name.replace("nvidia", "") for name in opened)


def run_pair(session: Session, label: str, place: Placement, alone: Placement) -> Pair:
    """Two jobs with one GPU a node; the first holds its GPUs until the second has answered.

    `place` has the nodes with two free GPUs, `alone` those with one: they run the first job only.
    """
    joint = Placement(place.partition, place.nodes + alone.nodes)
    names = ["pair-a" + label, "pair-b" + label]
    holding = session.start(names[0], joint.options(gpus=1), probe_jobs.argv("gpu", "hold"))
    holding.wait_for(probe.MARK, len(joint.nodes), session.queue_timeout)
    second = Answers({}, {})
    if place.nodes and probe.MARK in holding.text("out"):
        outcome = session.srun(names[1], place.options(gpus=1), probe_jobs.argv("gpu", ""))
        lines = probe_jobs.parse(outcome.out)
        second = Answers(lines, {node: probe_jobs.trouble(outcome) for node in place.nodes if node not in lines})
    holding.release()
    outcome = session.finish(names[0], holding)
    lines = probe_jobs.parse(outcome.out)
    return Pair(
        Answers(lines, {node: probe_jobs.trouble(outcome) for node in joint.nodes if node not in lines}), second
    )


def run_all(
    session: Session, names: Sequence[str], nodes: Mapping[str, Record], partitions: Mapping[str, Record]
) -> Pair:
    """Pairs on all named nodes; where a joint job left nodes without an answer, each of those is tried alone."""
    jobs = places(names, nodes, partitions)
    if not jobs:
        return merge([])
    with ThreadPoolExecutor(probe_jobs.WORKERS) as pool:
        numbered = [(str(number), job) for number, job in enumerate(jobs)]
        first = merge(list(pool.map(lambda entry: run_pair(session, entry[0], *entry[1]), numbered)))
        joint = {node for two, one in jobs if len(two.nodes + one.nodes) > 1 for node in two.nodes + one.nodes}
        troubled = [node for node in names if node in joint and node in (*first.first.troubles, *first.second.troubles)]
        again = [("-" + node, places([node], nodes, partitions)[0]) for node in troubled[: probe_jobs.MOST_ALONE]]
        second = list(pool.map(lambda entry: run_pair(session, entry[0], *entry[1]), again))
    return merge([first, *second])


def places(
    names: Sequence[str], nodes: Mapping[str, Record], partitions: Mapping[str, Record]
) -> List[Tuple[Placement, Placement]]:
    """For each job: the nodes with two free GPUs and those with one."""
    pairs = []
    for place in job_placement.place(names, nodes, partitions):
        two = [n for n in place.nodes if job_placement.free_gpus(nodes[n]) > 1 and job_placement.room_for_two(nodes[n])]
        one = [node for node in place.nodes if node not in two]
        pairs.append((Placement(place.partition, two), Placement(place.partition, one)))
    return pairs


def assignment(node: str, first: Data, second: Data, total: int) -> Check:
    """One device each, in CUDA_VISIBLE_DEVICES, and not the same one twice."""
    got = [device(data) for data in (first, second) if data]
    visible = [str(data.get("env", {}).get("CUDA_VISIBLE_DEVICES", "")) for data in (first, second) if data]
    measured = "GPU " + " and ".join(got)
    expected = "2 different GPUs" if second else "1 GPU"
    if any(not text for text in visible):
        return failed(
            "gpu-assignment", node, "CUDA_VISIBLE_DEVICES is not set in a job with a GPU", "not set", expected
        )
    if any(len(text.split(",")) != 1 for text in got + visible):
        text = "a job with --gpus-per-node=1 got CUDA_VISIBLE_DEVICES={}".format(" and ".join(visible))
        return failed("gpu-assignment", node, text, measured, expected)
    if second and got[0] == got[1]:
        return failed("gpu-assignment", node, "two jobs at the same time got the same GPU", measured, expected)
    text = "CUDA_VISIBLE_DEVICES={}".format(" and ".join(visible))
    if not second and total > 1:
        text += "; only one GPU was free: no second job to compare with"
    return check("gpu-assignment", node, PASS, measured, expected, message=text)


def evaluate(node: str, pair: Pair, total: int) -> Check:
    """The assignment check of one node, from the two jobs' answers."""
    for answers in (pair.first, pair.second):
        if node in answers.troubles:
            what = answers.troubles[node]
            return check("gpu-assignment", node, what.status, message=what.message)
    first, second = pair.first.lines.get(node), pair.second.lines.get(node)
    if not first:
        return skipped("gpu-assignment", node, "no job with a GPU ran here")
    return assignment(node, first[0], second[0] if second else {}, total)


def merge(pairs: Sequence[Pair]) -> Pair:
    """The answers of all jobs as one pair."""
    return Pair(_joined([pair.first for pair in pairs]), _joined([pair.second for pair in pairs]))


def _joined(answers: Sequence[Answers]) -> Answers:
    """Later answers count: a node that answered alone is in no trouble any more."""
    lines: Dict[str, List[Data]] = {}
    troubles: Dict[str, probe_jobs.Trouble] = {}
    for entry in answers:
        lines.update(entry.lines)
        troubles.update(entry.troubles)
    return Answers(lines, {node: what for node, what in troubles.items() if node not in lines})

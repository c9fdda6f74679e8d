"""GPUs given to jobs: two jobs at once on every GPU node must get different devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..._shared.checks import PASS, Check
from ..._shared.slurm_output import Record
from ..._slurm_jobs import confinement, placement, probe, probe_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.probe_jobs import Answers, Data
from ..._slurm_jobs.session import Session
from .context import SUITE, Context, check, failed, skipped

CHECKS = ("gpu-assignment", "gpu-confinement")


class Pair(NamedTuple):
    """Answers of two jobs that overlapped in time, by node."""

    first: Answers
    second: Answers


def verify_devices(context: Context) -> list[Check]:
    """Two jobs with a GPU at once on every GPU node: different devices, and no way to the others."""
    snapshot, answers = context.snapshot, context.answers
    with_gpus = [name for name in context.names if snapshot.gpus(name)]
    free = [name for name in with_gpus if placement.free_gpus(snapshot.nodes[name]) > 0]
    pair = try_pairs(context.session, free, snapshot.nodes, snapshot.partitions)
    checks = []
    confined = confinement.uses_cgroups(snapshot.config)
    for name in with_gpus:
        if name not in free:
            checks += [skipped(check, name, "busy: no GPU is free") for check in CHECKS]
            continue
        checks.append(evaluate(name, pair, snapshot.gpus(name)))
        lines = pair.first.lines.get(name)
        if not lines:
            checks.append(skipped("gpu-confinement", name, "no job with a GPU ran here"))
        elif not confined:
            checks.append(skipped("gpu-confinement", name, confinement.NOT_CONFIGURED))
        else:
            checks.append(
                confinement.gpus(SUITE, "gpu-confinement", name, lines[0]["gpus"], answers.lines[name][0]["gpus"])
            )
    return checks


def try_pair(session: Session, label: str, place: Placement, alone: Placement) -> Pair:
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


def try_pairs(
    session: Session, names: Sequence[str], nodes: Mapping[str, Record], partitions: Mapping[str, Record]
) -> Pair:
    """Pairs on all named nodes; where a joint job left nodes without an answer, each of those is tried alone."""
    jobs = places(names, nodes, partitions)
    if not jobs:
        return merge([])
    with ThreadPoolExecutor(probe_jobs.WORKERS) as pool:
        numbered = [(str(number), job) for number, job in enumerate(jobs)]
        first = merge(list(pool.map(lambda entry: try_pair(session, entry[0], *entry[1]), numbered)))
        joint = {node for two, one in jobs if len(two.nodes + one.nodes) > 1 for node in two.nodes + one.nodes}
        troubled = [node for node in names if node in joint and node in (*first.first.troubles, *first.second.troubles)]
        again = [("-" + node, places([node], nodes, partitions)[0]) for node in troubled[: probe_jobs.MOST_ALONE]]
        second = list(pool.map(lambda entry: try_pair(session, entry[0], *entry[1]), again))
    return merge([first, *second])


def places(
    names: Sequence[str], nodes: Mapping[str, Record], partitions: Mapping[str, Record]
) -> list[tuple[Placement, Placement]]:
    """For each job: the nodes with two free GPUs and those with one."""
    pairs = []
    for place in placement.place(names, nodes, partitions):
        two = [n for n in place.nodes if placement.free_gpus(nodes[n]) > 1 and placement.room_for_two(nodes[n])]
        one = [node for node in place.nodes if node not in two]
        pairs.append((Placement(place.partition, two), Placement(place.partition, one)))
    return pairs


def assignment(node: str, first: Data, second: Data, total: int) -> Check:
    """One device each, in CUDA_VISIBLE_DEVICES, and not the same one twice."""
    got = [confinement.device(data) for data in (first, second) if data]
    visible = [str(data.get("env", {}).get("CUDA_VISIBLE_DEVICES", "")) for data in (first, second) if data]
    measured = "GPU " + " and ".join(got)
    expected = "2 different GPUs" if second else "1 GPU"
    if any(not text for text in visible):
        return failed(
            "gpu-assignment", node, "CUDA_VISIBLE_DEVICES is not set in a job with a GPU", "not set", expected
        )
    if any(len(text.split(",")) != 1 for text in got + visible):
        text = f"a job with --gpus-per-node=1 got CUDA_VISIBLE_DEVICES={' and '.join(visible)}"
        return failed("gpu-assignment", node, text, measured, expected)
    if second and got[0] == got[1]:
        return failed("gpu-assignment", node, "two jobs at the same time got the same GPU", measured, expected)
    text = f"CUDA_VISIBLE_DEVICES={' and '.join(visible)}"
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
    lines: dict[str, list[Data]] = {}
    troubles: dict[str, probe_jobs.Trouble] = {}
    for entry in answers:
        lines.update(entry.lines)
        troubles.update(entry.troubles)
    return Answers(lines, {node: what for node, what in troubles.items() if node not in lines})

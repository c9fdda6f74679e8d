"""What a user could request next time. None for a job that was too short, or used what it requested."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..._shared.values import format_count, format_share, format_size, format_time
from .measures import Report
from .records import Job

# Shorter jobs are mostly starting up; samples every 15 or 30 s mean little for them.
SHORTEST_S = 120
LOW, HIGH, FULL = 0.5, 0.97, 0.8
_MIB, _GIB = 1 << 20, 1 << 30


def advise(report: Report) -> list[str]:
    """A sentence for each thing."""
    job = report.job
    if not job.began:
        return []
    advice = list(_outcome(report))
    if job.elapsed >= SHORTEST_S:
        advice += [*_cpu(report), *_memory(report), *_gpus(report)]
        if not job.runs:
            advice += _time(report)
    return advice


def _outcome(report: Report) -> Iterator[str]:
    job = report.job
    if job.out_of_memory:
        yield more_memory(job)
    elif job.state.startswith("TIMEOUT") and job.time_limit:
        yield (
            f"it did not end within {format_time(job.time_limit)}: ask for more with --time, or save its "
            "state on the way"
        )


def more_memory(job: Job) -> str:
    """What to do about a job, or a part of one, that was killed for its memory."""
    # of a job that completed, a part was killed
    parts = "" if job.state.startswith("OUT_OF_MEMORY") else ", ".join(job.steps_out_of_memory[:8])
    what = f"its step {parts}" if parts else "it"
    if not job.memory_asked:
        return f"{what} was killed because it needed more memory than it had: ask for more with --mem"
    asked = job.memory_asked / max(1, job.node_count)
    twice = f"{math.ceil(2 * asked / _GIB)}G" if asked >= _GIB else f"{math.ceil(2 * asked / _MIB)}M"
    limit = format_size(asked) + (" a node" if job.node_count > 1 else "")
    return f"{what} was killed because it needed more memory than {limit}: ask for more, for example --mem={twice}"


def _cpu(report: Report) -> Iterator[str]:
    cpu, job = report.cpu, report.job
    if not cpu or not cpu.used:
        return
    enough = max(1, math.ceil(cpu.used * 1.1))
    if cpu.asked > 1 and cpu.share < LOW and enough < cpu.asked:
        each = "" if job.node_count < 2 else f" on {job.node_count} nodes"
        yield (
            f"asked for {format_count(cpu.asked)} CPUs{each}, used {format_count(cpu.used)}: {enough} would "
            "have been enough"
        )
        if 0.8 <= cpu.used <= 1.2:
            yield "one CPU was busy: a program that is not parallel, or tasks that were not started with srun"


def _memory(report: Report) -> Iterator[str]:
    memory, job = report.memory, report.job
    if not memory or not memory.used or job.out_of_memory:
        return
    nodes = max(1, job.node_count)
    # --mem is of each node: the one that used most counts
    seen = [each.memory or 0.0 for each in (job.summary.nodes if job.summary else ())]
    used, asked = max([memory.used / nodes, *seen]), memory.asked / nodes
    # a quarter more than was seen, in whole GiB
    enough = math.ceil(used * 1.25 / _GIB)
    if used < LOW * asked and enough * _GIB < asked and asked >= 2 * _GIB:
        where = " a node" if nodes > 1 else ""
        request = f"asked for {format_size(asked)} of memory{where}"
        yield f"{request}, used {format_size(used)}: --mem={enough}G would have been enough"
    elif used > HIGH * asked:
        yield "it used nearly all the memory that it had: ask for more with --mem"


def _gpus(report: Report) -> Iterator[str]:
    known = [each for each in report.gpus if each.most is not None]
    idle = [f"{each.node}:{each.gpu}" for each in known if (each.most or 0) < 0.01]
    if idle:
        which = ", ".join(idle[:8]) + (f" and {len(idle) - 8} more" if len(idle) > 8 else "")
        # those without data may have been used
        total = max(report.job.gpus, len(known))
        rest = total - len(idle)
        wanted = f"ask for {rest}" if rest else "it needs none"
        never = "1 was" if len(idle) == 1 else f"{len(idle)} were"
        yield f"of {total} GPUs, {never} never used ({which}): {wanted}"
    busy = [each.use or 0.0 for each in known if (each.most or 0) >= 0.01]
    if busy and sum(busy) / len(busy) < 0.3:
        share = format_share(sum(busy), len(busy))
        yield f"GPUs waited most of the time ({share} busy): often data comes too slowly, or too little at a time"


def _time(report: Report) -> Iterator[str]:
    time, job = report.time, report.job
    if time and time.share < LOW and job.state == "COMPLETED" and time.asked - time.used > 1800:
        yield (
            f"asked for {format_time(time.asked)}, took {format_time(time.used)}: with a shorter --time jobs "
            "often start sooner"
        )

"""Changes of a waiting job, each tried with `sbatch --test-only`: Slurm says when the changed job would start.

slurmctld plans as it does for the queue, so a try costs it as much as one job of its backfill: few are made, and none
after a slow one. The same request unchanged is the first, for the gain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..._shared import slurm_output
from ..._shared.fitting import fits, minutes
from ..._shared.slurm_output import clock
from ..._shared.values import format_time
from .answer import Advice, moment
from .asking import Slurm
from .job import Job
from .resources import Places

# tries, seconds in all, and the shortest gain in seconds that is one
MOST, BUDGET_S, LEAST_GAIN_S = 6, 8.0, 60
_NAME = re.compile(r"[A-Za-z0-9][\w.@-]*\$?")


class Change(NamedTuple):
    """Options of sbatch that differ (None: left out), and the words by which `scontrol update` does the same."""

    text: str
    options: dict[str, str | None]
    words: str


def start(job: Job, slurm: Slurm, options: dict[str, str | None] | None = None) -> int | None:
    """When Slurm would start the job with these options; None where it would not."""
    wanted = {**job.options(), **(options or {})}
    argv = [
        "sbatch",
        "--test-only",
        *(f"{key}={value}" if value else key for key, value in wanted.items() if value is not None),
    ]
    if slurm.me != job["UserName"]:
        argv.append("--uid=" + job["UserName"])
    return slurm_output.would_start(slurm.result([*argv, "--wrap=true"]).errors)


def sooner(job: Job, slurm: Slurm, changes: list[Change], expected: int | None, *, stuck: bool) -> list[Advice]:
    """Those by which the job would start earlier, the best first. `expected` is Slurm's own plan for the job.

    One that is `stuck` does not start as it is: what --test-only says of it is without limits that are reached.
    """
    # a try is as good as the job for its own user, and for root in the user's name
    if not changes or not (slurm.me == job["UserName"] or (slurm.me == "root" and _NAME.fullmatch(job["UserName"]))):
        return []
    known = [] if stuck else [each for each in (expected, start(job, slurm)) if each is not None]
    advice, asked = [], slurm.spent_s
    best: dict[tuple[str, ...], int] = {}
    for change in changes[:MOST]:
        if slurm.spent_s - asked > BUDGET_S:
            break
        begin = start(job, slurm, change.options)
        gain = min(known) - begin if begin and known else None
        # the next change of the same option asks for less: it is worth it where it gains more
        kind = tuple(change.options) if None not in change.options.values() else ()
        if begin and (gain is None or gain >= LEAST_GAIN_S) and begin + LEAST_GAIN_S <= best.get(kind, float("inf")):
            best.update({kind: begin} if kind in (("--time",), ("--gpus",), ("--gres",)) else {})
            advice.append(Advice(_gained(change.text, begin, gain), _command(job, change), begin, gain))
    return sorted(advice, key=lambda each: each.start or 0)


def _gained(text: str, begin: int, gain: int | None) -> str:
    return f"{text}: it would start at {moment(begin)} or earlier" + (f", {format_time(gain)} sooner" if gain else "")


def _command(job: Job, change: Change) -> str:
    return f"scontrol update jobid={job.wanted} {change.words}" if change.words else ""


def candidates(job: Job, where: Places, now: float, planned: list[int]) -> list[Change]:
    """What can help a job that waits for resources; `planned` are times at which reservations of its nodes begin."""
    return [*_shorter(job, now, planned), *_elsewhere(job, where), *_freer(job), *_smaller(job)]


def _shorter(job: Job, now: float, planned: list[int]) -> Iterator[Change]:
    limit = job.minutes
    if limit is None:
        return
    # a minute for slurmctld to start it
    before = [int((begin - now) / 60) - 2 for begin in planned if begin > now]
    times = [time for time in (*sorted(before, reverse=True)[:1], limit // 2, limit // 4) if 1 <= time < limit]
    for time in dict.fromkeys(times):
        yield time_limit(time, "a shorter time limit")


def time_limit(limit: int, text: str) -> Change:
    """Another time limit, in minutes."""
    return Change(f"{text}, --time={clock(limit)}", {"--time": str(limit)}, f"timelimit={clock(limit)}")


def _elsewhere(job: Job, where: Places) -> Iterator[Change]:
    others = [name for name in allowed_partitions(job, where) if name not in job.partitions]
    seen = {where.layout.members.get(name, frozenset()) for name in job.partitions}
    for name in others:
        members = where.layout.members[name]
        if members not in seen:
            seen.add(members)
            yield partition(name)


def partition(name: str) -> Change:
    """Another partition."""
    return Change(f"partition {name}", {"--partition": name}, f"partition={name}")


def allowed_partitions(job: Job, where: Places) -> list[str]:
    """Those that are open to the job's account and QOS, with nodes that fit it, and long enough."""
    request = job.request
    return [
        name
        for name, entry in where.layout.partitions.items()
        if entry.get("state") == "UP"
        and entry.get("hidden", "NO") == "NO"
        and entry.get("rootonly", "NO") == "NO"
        and is_allowed(entry.get("allowaccounts", "ALL"), job["Account"])
        and is_allowed(entry.get("allowqos", "ALL"), job["QOS"])
        and (job.minutes is None or job.minutes <= (minutes(entry) or job.minutes))
        and fits(request._replace(partitions=(name,)), where.layout)
    ]


def is_allowed(names: str, name: str) -> bool:
    """Whether a list of a partition's has it."""
    return names == "ALL" or name in names.split(",")


def _freer(job: Job) -> Iterator[Change]:
    if job["ReqNodes"]:
        yield Change(f"not only {job['ReqNodes']}", {"--nodelist": None}, "reqnodelist=")
    if job["ExcNodes"]:
        yield Change(f"also {job['ExcNodes']}", {"--exclude": None}, "excnodelist=")
    if job["Feature"]:
        yield Change("without --constraint", {"--constraint": None}, "features=")
    if job["OverSubscribe"] == "NO":
        yield Change("without --exclusive", {"--exclusive": None}, "")


def _smaller(job: Job) -> Iterator[Change]:
    options = job.options()
    for option in ("--gpus", "--gres"):
        match = re.fullmatch(r"(gpu:)?(?:([a-z]\w*):)?([0-9]+)", options.get(option, ""))
        if not match:
            continue
        name, kind, number = match[1] or "", match[2], int(match[3])
        if kind:
            yield Change(f"a GPU of any type, {option}={name}{number}", {option: f"{name}{number}"}, "")
        if number > 1:
            fewer = f"{name}{kind + ':' if kind else ''}{number // 2}"
            yield Change(f"fewer GPUs, {option}={fewer}", {option: fewer}, "")

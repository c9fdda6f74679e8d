"""The whole answer to `why JOBID`, for people, programs and pages."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from ..._shared.slurm_output import clean
from . import ended, job as live, waiting
from .answer import Cause, moment, until
from .asking import Ask, NoJobError, Slurm, ask_slurm
from .job import Job


@dataclass
class Explanation:
    """What there is to say of a job. `state` is one of: waiting, running, ended."""

    job: str
    user: str
    state: str
    slurm_state: str
    slurm_reason: str
    headline: str
    expected_start: int | None = None
    expected_nodes: str = ""
    causes: list[Cause] = field(default_factory=list)
    calls: int = 0


def explain(wanted: str, ask: Ask = ask_slurm, now: float | None = None, me: str | None = None) -> Explanation:
    """Explain one job, `123`, `123_4` or `123+1`. Raises NoJobError."""
    slurm, asked = Slurm(ask, me), time.time() if now is None else now
    several = live.jobs(wanted, slurm)
    chosen = live.of_interest(several) if several else None
    if chosen and chosen.waits:
        answer = _waiting(chosen, several, slurm, asked)
    elif chosen and chosen["State"] in ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED"):
        answer = _running(chosen, asked)
    else:
        answer = _ended(wanted, slurm)
    answer.calls = slurm.calls
    return answer


def _waiting(job: Job, several: list[Job], slurm: Slurm, now: float) -> Explanation:
    causes = waiting.explain(job, slurm, now)
    start = job.time("StartTime")
    # a time in the past is that of an earlier run
    start = start if start and start >= now - 60 else None
    running = sum(each["State"] == "RUNNING" for each in several)
    headline = "waits" + (f" ({running} more of its array run)" if running else "")
    return Explanation(
        job=job["JobArrayID"],
        user=job["UserName"],
        state="waiting",
        slurm_state=job["State"],
        slurm_reason=job["Reason"],
        headline=headline,
        expected_start=start,
        expected_nodes=job["SchedNodes"] if start else "",
        causes=causes,
    )


def _running(job: Job, now: float) -> Explanation:
    word = {"SUSPENDED": "is suspended", "STOPPED": "is stopped", "CONFIGURING": "waits until its nodes are ready"}
    headline = f"{word.get(job['State'], 'runs')} on {job['NodeList'] or '?'}, {until(job.time('EndTime'), now)}"
    return Explanation(job["JobArrayID"], job["UserName"], "running", job["State"], job["Reason"], headline)


def _ended(wanted: str, slurm: Slurm) -> Explanation:
    number = wanted.replace("+", "_").partition("_")[0]
    runs = [run for run in ended.runs(wanted, slurm) if run.id.replace("+", "_").partition("_")[0] == number]
    if not runs:
        raise NoJobError(f"job {wanted}: Slurm knows none that you may see")
    # of an array, one that failed
    run = min(runs, key=lambda each: each.state in ("COMPLETED", "RUNNING", "PENDING"))
    causes = ended.explain(run)
    failed = sum(each.state not in ("COMPLETED", "RUNNING", "PENDING") for each in runs)
    more = f" ({failed} of {len(runs)} tasks did not complete)" if len(runs) > 1 and failed else ""
    return Explanation(
        job=clean(run.id),
        user=clean(run.row["User"]),
        state="ended",
        slurm_state=clean(run.row["State"]),
        slurm_reason="",
        headline=f"{clean(run.state.lower().replace('_', ' '))}, {ended.when(run)}{more}",
        causes=causes,
    )


def document(answer: Explanation) -> dict[str, Any]:
    """The answer as JSON has it."""
    causes = [{**asdict(cause), "advice": [each._asdict() for each in cause.advice]} for cause in answer.causes]
    return {"schema": 1, "command": "why", "ok": True, **asdict(answer), "causes": causes}


def render(answer: Explanation) -> list[str]:
    """The answer as lines."""
    lines = [f"Job {answer.job} of {answer.user}: {answer.headline}"]
    for cause in answer.causes:
        lines += ["", cause.text[:1].upper() + cause.text[1:] + ".", *(f"  {detail}" for detail in cause.details)]
    if answer.state == "waiting":
        where = f" on {answer.expected_nodes}" if answer.expected_nodes else ""
        start = answer.expected_start
        lines += [
            "",
            f"Expected start: {moment(start)}{where}, from the time limits of running jobs."
            if start
            else "Expected start: Slurm has planned none yet.",
        ]
    advice = [each for cause in answer.causes for each in cause.advice]
    if advice:
        title = "What you can change to start sooner:" if any(each.gain_s for each in advice) else "What to do:"
        lines += ["", title]
        for each in advice:
            lines += [f"- {each.text}", *([f"    {each.command}"] if each.command else [])]
    if answer.state == "ended" and not answer.causes:
        lines += ["", f"It ended by itself without an error. What it used: seff {answer.job}"]
    return lines

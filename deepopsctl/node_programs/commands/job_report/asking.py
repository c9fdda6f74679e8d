"""Slurm's own commands: what they answer, or why there is no answer. Who may see what is theirs to decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Callable

from ..._shared import command, slurm_client
from . import records
from .records import Job

LIMIT_S = 60
# What runs a command and returns its output; tests have their own
Run = Callable[[Sequence[str]], str]


class UnansweredError(Exception):
    """There is no answer; the message has the reason."""


def jobs(wanted: str, run: Run) -> list[Job]:
    """The jobs of a number, `123`, `123_4` or `123+1`; those that run with what they use at the moment."""
    number = wanted.replace("+", "_").partition("_")[0]
    matching = [job for job in records.read(run(sacct(records.FIELDS, "--jobs=" + wanted))) if job.is_of(number)]
    names = records.read_names(run(sacct(records.NAME_FIELDS, "--allocations", "--jobs=" + wanted))) if matching else {}
    matching = [replace(job, name=names.get(job.id, "")) for job in matching]
    return [_with_live(job, run) if job.runs else job for job in matching]


def sacct(fields: Sequence[str], *which: str) -> list[str]:
    """A question to the accounting, for what `records` reads."""
    return ["sacct", "--parsable2", "--noheader", "--delimiter=" + records.DELIMITER, *which, _format(fields)]


def _format(fields: Sequence[str]) -> str:
    return "--format=" + ",".join(fields)


def _with_live(job: Job, run: Run) -> Job:
    argv = ["sstat", "--parsable2", "--noheader", "--allsteps"]
    try:
        steps = records.read_live(run([*argv, "--jobs=" + job.number, _format(records.LIVE_FIELDS)]))
    except UnansweredError:
        # another user's job, or one that has just ended: use the accounting's data
        return job
    if not steps:
        return job
    memory = [memory for _, memory in steps.values() if memory is not None]
    # the accounting has the steps that ended already, sstat those that run
    cpu = sum(seconds for seconds, _ in steps.values()) + (job.cpu_seconds or 0.0)
    most = [*memory, *([job.memory_used] if job.memory_used is not None else [])]
    return replace(job, cpu_seconds=cpu, memory_used=max(most) if most else None)


def run_command(argv: Sequence[str]) -> str:
    """Run one of Slurm's commands."""
    # times as numbers, whatever the user likes to see
    result = slurm_client.ask(argv, LIMIT_S, env=command.slurm_environment(SLURM_TIME_FORMAT="%s", TZ="UTC"))
    if not result.ok:
        raise UnansweredError(result.failure)
    return result.output

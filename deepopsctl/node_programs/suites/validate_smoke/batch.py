"""Batch jobs: their output arrives where they ran, and an array runs all its tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ..._shared import slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.slurm_output import Record
from ..._slurm_jobs import placement
from ..._slurm_jobs.session import Session, is_busy
from .context import Context, Job, check, failed

MARK = "DEEPOPS-BATCH"
TASKS = 3
SCRIPT = """#!/bin/sh
job=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}
echo "{mark} job=$job task=${{SLURM_ARRAY_TASK_ID:-none}} user=$(id -u)"
"""
# prints and removes files on the node where they were written: homes need not be shared
FETCH = 'for file in "$@"; do cat "$file" && rm -f "$file"; done'


class Files(NamedTuple):
    """Output files of batch jobs on one node."""

    node: str
    partition: str
    paths: list[str]


def path(session: Session, what: str) -> str:
    """Where a job writes: the user's home, where people's jobs write, whether shared or not."""
    return os.path.join(os.path.expanduser("~"), session.name(what) + ".out")


def options(place: Record, output: str) -> list[str]:
    """sbatch's options for a small job on one node."""
    return [
        "--partition=" + place["partition"],
        "--nodelist=" + place["node"],
        "--ntasks=1",
        "--mem=50M",
        "--output=" + output,
    ]


def lines(out: str) -> list[dict[str, str]]:
    """The jobs' lines in what was fetched."""
    rows = [line.split(MARK, 1)[1].split() for line in out.splitlines() if MARK in line]
    return [dict(word.split("=", 1) for word in row if "=" in word) for row in rows]


def fetch(session: Session, what: str, files: Files) -> tuple[str, str]:
    """Read files on the node that wrote them, and remove them there; (text, error)."""
    place = [
        "--partition=" + files.partition,
        "--nodelist=" + files.node,
        "--nodes=1",
        "--ntasks=1",
        "--mem=50M",
    ]
    outcome = session.srun(what, place, ["/bin/sh", "-c", FETCH, "fetch", *files.paths])
    if outcome.ended and outcome.rc == 0:
        return outcome.out, ""
    # the command's own message says more than srun's
    messages = [line for line in outcome.why.splitlines() if not line.startswith("srun:")]
    return outcome.out, one_line(messages[0] if messages else outcome.why)


def output_check(node: str, job: Job, output_lines: Sequence[dict[str, str]], error: str) -> Check:
    """The batch job's own line arrived, written by the user."""
    own = [line for line in output_lines if line.get("job") == job.id and line.get("task") == "none"]
    expected = f"output of job {job.id}"
    if not own:
        text = "the batch job ended, but its output is not on the node" + (": " + error if error else "")
        return failed("batch-output", node, text, "nothing", expected)
    if own[0].get("user") != str(os.getuid()):
        return failed(
            "batch-output",
            node,
            "the job ran as another user",
            "uid " + own[0].get("user", "?"),
            f"uid {os.getuid()}",
        )
    return check("batch-output", node, PASS, expected, expected)


def array_check(node: str, job: Job, output_lines: Sequence[dict[str, str]], error: str) -> Check:
    """Every task of the array ran, each with an index of its own."""
    tasks = sorted(line.get("task", "") for line in output_lines if line.get("job") == job.id)
    expected = ", ".join(str(number) for number in range(1, TASKS + 1))
    status = PASS if ", ".join(tasks) == expected else FAIL
    text = "" if status == PASS else "not every task of the array left its line" + (": " + error if error else "")
    return check("job-array", node, status, "tasks " + (", ".join(tasks) or "none"), "tasks " + expected, message=text)


def _left(name: str, node: str, left: tuple[str, str], allowed: float) -> Check:
    state, reason = left
    status = SKIP if state == "PENDING" and is_busy(reason) else FAIL
    # a prolog that checks GPUs may take its time, and nothing is wrong then
    within = "in time" if state == "PENDING" else f"within {allowed:.0f} s (validate_smoke_run_timeout)"
    return check(
        name,
        node,
        status,
        state.lower(),
        "completed",
        message=f"the job did not end {within}; Slurm's reason: {reason}",
    )


def verify_batch_jobs(context: Context) -> list[Check]:
    """A batch job and an array on the node with most free CPUs."""
    nodes, partitions = context.snapshot.nodes, context.snapshot.partitions

    def room(name: str) -> int:
        return slurm_output.number(nodes[name], "CPUTot") - slurm_output.number(nodes[name], "CPUAlloc")

    best = max(context.names, key=room)
    checks, jobs = submit_on(context.session, best, placement.choose(nodes[best], partitions))
    context.jobs.extend(jobs)
    return checks


def submit_on(session: Session, node: str, partition: str) -> tuple[list[Check], list[Job]]:
    """Submit a batch job and an array on one node, wait, read what they wrote there; with the jobs that ended."""
    place = {"node": node, "partition": partition}
    single, many = path(session, "batch"), path(session, "array")
    script = SCRIPT.format(mark=MARK)
    answers = {
        "batch-output": session.sbatch("batch", options(place, single), script),
        "job-array": session.sbatch("array", [f"--array=1-{TASKS}", *options(place, many + ".%a")], script),
    }
    checks = [
        failed(name, node, "sbatch: " + one_line(answer.message), "refused", "submitted")
        for name, answer in answers.items()
        if not answer.ok
    ]
    submitted = {
        name: Job(answer.output, name, tasks=TASKS if name == "job-array" else 0)
        for name, answer in answers.items()
        if answer.ok
    }
    if not submitted:
        return checks, []
    left = session.wait([job.id for job in submitted.values()])
    paths = [single] + [many + f".{number}" for number in range(1, TASKS + 1)]
    text, error = fetch(session, "fetch", Files(node, partition, paths))
    evaluators = {"batch-output": output_check, "job-array": array_check}
    for name, job in submitted.items():
        evaluate = evaluators[name]
        if job.id in left:
            checks.append(_left(name, node, left[job.id], session.run_timeout))
        else:
            checks.append(evaluate(node, job, lines(text), error))
    good = [check["name"] for check in checks if check["status"] == PASS]
    return checks, [job for name, job in submitted.items() if name in good]

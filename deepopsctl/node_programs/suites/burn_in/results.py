"""A node's result, from its job's output and the job's state in Slurm. Pure except for `collect`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import checks
from ..._shared.checks import FAIL, SKIP, Check, one_line
from ..gpu_check.burn.evaluation import SUITE, kernel_log
from . import script

NAME = "burn-completed"
# ended by a user, not by the node: nothing was tested, and nothing is wrong
_CANCELLED = ("CANCELLED", "PREEMPTED", "REVOKED", "DEADLINE")
_WORDS = {
    "NODE_FAIL": "the node went down under load",
    "OUT_OF_MEMORY": "the kernel ended the load for want of memory",
    "TIMEOUT": "the load hung: it did not end by itself",
    "BOOT_FAIL": "the node did not boot",
}
_TAIL = 400


class Job(NamedTuple):
    """What was sent to a node; `state` as Slurm had it last, '' where its end was not seen."""

    id: str
    state: str
    used_s: int


def collect(path: str) -> str:
    """A job's output, and its file is gone afterwards; '' where there is none."""
    try:
        with open(path, errors="replace") as stream:
            text = stream.read()
        os.unlink(path)
    except FileNotFoundError:
        return ""
    return text


def documents(node: str, outputs: Mapping[str, str]) -> list[dict[str, Any]]:
    """What gpucheck measured in each job, under Slurm's name of the node."""
    parsed = [script.document(out) for out in outputs.values()]
    return [dict(entry["result"], node=node) for entry in parsed if entry is not None]


def evaluate(
    node: str, asked_s: float, jobs: Sequence[Job], outputs: Mapping[str, str], log: Mapping[str, Any]
) -> list[Check]:
    """The checks of one node; `log` is what root read of the kernel log.

    Two jobs met on it where one came free early: the worse of them counts.
    """
    checks_by_job = [checks_of_job(node, asked_s, job, outputs.get(job.id, ""), log) for job in jobs]
    ranked = sorted(checks_by_job, key=lambda checks: any(check["status"] == FAIL for check in checks), reverse=True)
    return ranked[0] if ranked else []


def checks_of_job(node: str, asked_s: float, job: Job, out: str, log: Mapping[str, Any]) -> list[Check]:
    """The checks of one job: gpucheck's own checks under Slurm's name of the node."""
    output: dict[str, Any] | None = script.document(out)
    if output is None:
        unexplained = [without_result(node, asked_s, job, out)]
        return [*unexplained, kernel_log({"node": node, "ended": ""}, log)] if log.get("lines") else unexplained
    own = str(output["result"]["node"])
    checks_made = output["checks"]
    if "lines" in log and output["result"]["kernel_log"].get("obstacle"):
        read = kernel_log(output["result"], log)
        checks_made = [read if check["name"] == read["name"] else check for check in checks_made]
    return [_renamed(check, own, node) for check in checks_made]


def _renamed(check: Mapping[str, str], own: str, node: str) -> Check:
    """The node's name in Slurm: its host name may be another one."""
    target = check["target"]
    return dict(check, target=node + target[len(own) :] if target.startswith(own) else target)


def without_result(node: str, asked_s: float, job: Job, out: str) -> Check:
    """The check of a job without a result: it was cancelled, or the node failed."""
    state = job.state.split(" ")[0]
    expected, used = f"{asked_s:.0f}", str(job.used_s)
    if state in _CANCELLED:
        text = f"ended after {used} of {asked_s:.0f} s: {state.lower()} in Slurm"
        return checks.check(SUITE, NAME, node, SKIP, used, expected, "s", text)
    what = _WORDS.get(state) or f"job {job.id} left no result (Slurm: {state.lower() or 'not seen'})"
    tail = one_line(out[-_TAIL:])
    return checks.check(SUITE, NAME, node, FAIL, used, expected, "s", what + (": " + tail if tail else ""))

"""What `node_program` starts: `node` on every node, `suite` and `reframe` on a submit host, as the connecting user."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..._shared.checks import Check
from ..._slurm_jobs import placement, probe_jobs, suite as suite_of_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Session
from ..._slurm_jobs.snapshot import read_snapshot
from . import reframe, runner
from .evaluation import SUITE, check, evaluate, skipped

Request = dict[str, Any]
Result = dict[str, Any]
# for the start of a job, besides its executables
_START_S = 30.0
_RUNNER = inspect.getsource(runner)


def main(request: Request) -> Result:
    """One phase."""
    phases = {"node": _on_node, "suite": _in_jobs, "reframe": reframe.run_suites}
    return suite_of_jobs.run_trials(request, phases[request["phase"]])


def _on_node(request: Request) -> Result:
    """Run the executables of `checks`, {name: base64}, here."""
    seconds = float(request["run_timeout"])
    return {
        "checks": [
            evaluate(name, request["node"], runner.run_executable(base64.b64decode(content), seconds), seconds)
            for name, content in request["checks"].items()
        ]
    }


def _in_jobs(request: Request) -> Result:
    """Run them in one job on each compute node of `compute` that has room."""
    seconds, names = float(request["run_timeout"]), list(request["checks"])
    total = seconds * len(names) + _START_S
    session = suite_of_jobs.session(request, SUITE, total, int(total // 60) + 1)
    snapshot, checks = read_snapshot(), []
    free = []
    for node in request["compute"]:
        state = snapshot.nodes.get(node)
        reason = placement.obstacle(state, snapshot.partitions) if state else "slurmctld does not know this node"
        if reason:
            checks += [skipped(name, node, reason) for name in names]
        else:
            free.append(node)
    words = [f"{name}={content}" for name, content in request["checks"].items()]
    try:
        with ThreadPoolExecutor(probe_jobs.WORKERS) as pool:
            places = placement.place(free, snapshot.nodes, snapshot.partitions)
            for made in pool.map(lambda place: _job(session, place, words, seconds), places):
                checks += made
    finally:
        session.close()
    return {"checks": checks}


def _job(session: Session, place: Placement, words: list[str], seconds: float) -> list[Check]:
    argv = ["/usr/bin/python3", "-c", _RUNNER, str(seconds), *words]
    outcome = session.srun("checks", place.options(), argv)
    answers, checks = _answers(outcome.out), []
    for node in place.nodes:
        for name in (word.partition("=")[0] for word in words):
            answer = answers.get((node, name))
            if answer is None:
                trouble = probe_jobs.trouble(outcome)
                checks.append(check(name, node, trouble.status, message=trouble.message))
            else:
                checks.append(evaluate(name, node, answer, seconds))
    return checks


def _answers(output: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    """What each executable printed on each node; a line that is none is ignored."""
    answers = {}
    for line in output.splitlines():
        start = line.find(runner.MARK)
        if start < 0:
            continue
        try:
            answer = json.loads(line[start + len(runner.MARK) :])
            answers[str(answer["node"]), str(answer["name"])] = answer
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return answers

"""One small job on every node that has room: does it answer, is it kept on its core, does the cluster's key fit."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..._shared.checks import FAIL, PASS, SKIP, Check
from ..._slurm_jobs import confinement as slurm_confinement, placement, probe_jobs
from ..._slurm_jobs.probe_jobs import Answers, Trouble
from . import confinement, munge
from .context import Context, Inputs, Job, check, skipped

WORKERS = 8


def verify_nodes(context: Context) -> tuple[list[Check], Answers]:
    """The checks of every tested node, and the nodes' answers."""
    inputs = context.inputs
    with ThreadPoolExecutor(WORKERS) as pool:
        decoded = dict(zip(inputs.tested, pool.map(lambda name: _decode(inputs.report(name)), inputs.tested)))
    answers = _ask(context, _unusable_nodes(inputs, decoded))
    confined = slurm_confinement.uses_cgroups(context.snapshot.config)
    checks: list[Check] = []
    for name in inputs.tested:
        data = answers.lines.get(name, [{}])[0]
        checks.append(_answer(name, data, answers.troubles.get(name)))
        checks.append(_cores(name, data, confined=confined))
        checks.append(_munge(inputs, name, decoded[name], str(data.get("munge", ""))))
    return checks, answers


def _unusable_nodes(inputs: Inputs, decoded: Mapping[str, str]) -> dict[str, Trouble]:
    """Nodes that can't run a job, whatever Slurm reports: one sent there would hang until they are fixed."""
    troubles: dict[str, Trouble] = {}
    for name in inputs.tested:
        report = inputs.report(name)
        if report.get("slurmd_active") is False:
            troubles[name] = Trouble(FAIL, "slurmd is not active on the node")
        elif report.get("munge") and not decoded[name].startswith(munge.GOOD):
            troubles[name] = Trouble(FAIL, "munge does not work between this node and " + inputs.submit)
    return troubles


def _ask(context: Context, gone: Mapping[str, Trouble]) -> Answers:
    inputs, snapshot = context.inputs, context.snapshot
    obstacles = snapshot.obstacles(inputs.tested)
    obstacles.update({name: "Slurm does not know this node" for name in inputs.tested if name not in snapshot.nodes})
    ready = [name for name in inputs.tested if name not in gone and name not in obstacles]
    silent = [name for name in ready if name not in inputs.reports]
    places = placement.place([name for name in ready if name not in silent], snapshot.nodes, snapshot.partitions)
    alone = [place for name in silent for place in placement.place([name], snapshot.nodes, snapshot.partitions)]
    argv = probe_jobs.argv("answer", munge.encode()["credential"])
    answers = probe_jobs.ask(context.session, "answer", places, argv, alone=alone)
    troubles: dict[str, Trouble] = {name: Trouble(SKIP, reason) for name, reason in obstacles.items()}
    troubles.update(answers.troubles)
    troubles.update(gone)
    return answers._replace(troubles=troubles)


def _answer(name: str, data: Mapping[str, Any], trouble: Trouble | None) -> Check:
    if trouble or not data:
        what = trouble or Trouble(FAIL, "the job left no answer")
        measured = "no answer" if what.status == FAIL else ""
        return check("node-answers", name, what.status, measured, name, message=what.message)
    return check("node-answers", name, PASS, str(data.get("host", "")).split(".")[0], name)


def _cores(name: str, data: Mapping[str, Any], *, confined: bool) -> Check:
    if not data:
        return skipped("cpu-confinement", name, "no job ran here")
    if not confined:
        return skipped("cpu-confinement", name, slurm_confinement.NOT_CONFIGURED)
    return confinement.cores(name, data["cpus"])


def _decode(report: Mapping[str, Any]) -> str:
    """munge's status here of the credential that the node made."""
    credential = (report.get("munge") or {}).get("credential")
    return munge.decode(credential) if credential else ""


def _munge(inputs: Inputs, name: str, here: str, there: str) -> Check:
    made = inputs.report(name).get("munge")
    return munge.not_tried(name) if made is None else munge.across(name, made, here, there, inputs.submit)


def jobs_of(answers: Answers) -> list[Job]:
    """The jobs that nodes answered in, where every node of them did."""
    ids = sorted({str(lines[0].get("job", "")) for lines in answers.lines.values()})
    return [Job(identifier, "node-answers") for identifier in ids if identifier and not answers.troubles]

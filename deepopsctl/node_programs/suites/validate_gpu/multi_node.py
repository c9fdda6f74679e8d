"""One job over all nodes with the same number of GPUs: NCCL's all-reduce, after each was measured alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..._shared import slurm_client, slurm_output
from ..._shared.checks import SKIP
from ..._shared.slurm_output import Record
from ..._slurm_jobs import probe_jobs, slurm
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Running, Session
from ..gpu_check.across import ID_MARK, RESULT_MARK
from . import gpucheck, measurement
from .inputs import Inputs

NO_NCCL = "no NCCL on the nodes: validate gpu --with-libraries"
TOO_FEW = "fewer than two nodes with equally many GPUs could be measured"
_NAME = "across"
# to read half a gigabyte of NCCL on every node
_LOADING_S = 60


def choose(measured: Mapping[str, str], nodes: Mapping[str, Record]) -> Placement | None:
    """The largest set of measured nodes (name -> partition) with equally many GPUs; None where no two have."""
    sets: dict[Any, list[str]] = {}
    for name, partition in measured.items():
        sets.setdefault((partition, slurm_output.gpu_count(nodes[name].get("Gres", ""))), []).append(name)
    best = max(sets.items(), key=lambda entry: len(entry[1]), default=None)
    if best is None or len(best[1]) < 2:
        return None
    (partition, _gpus), names = best
    return Placement(partition, names)


def measure(session: Session, inputs: Inputs, together: Placement, nodes: Mapping[str, Record]) -> dict[str, Any]:
    """What the job gave: as gpucheck's measurements are, and which nodes took part."""
    wanted = measurement.options(together, [nodes[name] for name in together.nodes])
    running = session.start(_NAME, wanted, gpucheck.argv(arguments(inputs, together)))
    running.send(inputs.archive + "\n", more=True)
    _introduce(session, running)
    outcome = session.finish(_NAME, running)
    result = {"nodes": hostlist(together.nodes)}
    answers = parse(outcome.out)
    first = next((answer for answer in answers if answer.get("rank") == 0), None)
    bad = next((answer for answer in answers if answer.get("status") != "measured"), None)
    if bad or (first and len(answers) == len(together.nodes)):
        return {**result, **(bad or first or {})}
    what = probe_jobs.trouble(outcome)
    text = what.message if outcome.rc else f"{len(answers)} of {len(together.nodes)} nodes answered"
    return {**result, "status": "skip" if what.status == SKIP else "error", "message": text}


def _introduce(session: Session, running: Running) -> None:
    """Hand the first node's id to all of them: srun gives its input to every task."""
    running.wait_for(ID_MARK, 1, session.queue_timeout + _LOADING_S)
    line = next((line for line in running.text("out").splitlines() if ID_MARK in line), "")
    running.send(line.partition(ID_MARK)[2].strip() + "\n")


def arguments(inputs: Inputs, together: Placement) -> list[str]:
    """gpucheck's own."""
    return [f"--across={len(together.nodes)}", "--nccl=" + inputs.nccl]


def parse(out: str) -> list[dict[str, Any]]:
    """The nodes' results in what the job printed."""
    results = []
    for line in out.splitlines():
        _before, mark, text = line.partition(RESULT_MARK)
        try:
            data = json.loads(text) if mark else None
        except ValueError:
            continue
        if isinstance(data, dict):
            results.append(data)
    return results


def hostlist(names: Sequence[str]) -> str:
    """`gpu[01-16]`, as Slurm writes it."""
    answer = slurm.ask(slurm_client.scontrol("show", "hostlist", ",".join(names)))
    return answer.output.strip() if answer.ok and answer.output.strip() else ",".join(names)

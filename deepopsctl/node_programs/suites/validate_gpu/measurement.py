"""One job with all GPUs of a node, in which gpucheck measures them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._shared import slurm_output
from ..._shared.checks import FAIL, PASS, Check, one_line
from ..._shared.slurm_output import Record
from ..._slurm_jobs import placement, probe_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Session
from . import gpucheck
from .inputs import Inputs, check, skipped

NAME = "gpu-job"
# pinned memory for both directions, buffers to compare with, Python; less makes gpucheck fail, not only slow
WANTED_MB, LEAST_MB = 8192, 1024


class Measured(NamedTuple):
    """The node's result (none where the job gave none), and whether the job did what it was for."""

    result: dict[str, Any] | None
    check: Check


def obstacle(node: Record) -> str:
    """Why a job with all GPUs would have to wait; '' when it would start at once."""
    total, free = slurm_output.gpu_count(node.get("Gres", "")), placement.free_gpus(node)
    if free < total:
        return f"busy: other jobs have {total - free} of its {total} GPUs"
    if _memory(node) < LEAST_MB:
        return f"busy: jobs have left {_memory(node)} MiB of its memory, measuring takes {LEAST_MB}"
    return ""


def options(place: Placement, nodes: Sequence[Record]) -> list[str]:
    """All GPUs, and all CPUs that are free on each: host memory is measured from the CPUs next to each GPU."""
    count = len(place.nodes)
    return [
        "--partition=" + place.partition,
        "--nodelist=" + ",".join(place.nodes),
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={min(_cpus(node) for node in nodes)}",
        f"--mem={min(WANTED_MB, *(_memory(node) for node in nodes))}M",
        f"--gres=gpu:{slurm_output.gpu_count(nodes[0].get('Gres', ''))}",
    ]


def measure(session: Session, inputs: Inputs, place: Placement, node: Record) -> Measured:
    """Run it; output that is not a result is reported as the reason."""
    name, gpus = place.nodes[0], slurm_output.gpu_count(node.get("Gres", ""))
    reason = obstacle(node)
    if reason:
        return Measured(None, skipped(NAME, name, reason))
    arguments = ["--json", f"--timeout={inputs.gpu_timeout:g}"]
    arguments += [f"--{name}={path}" for name, path in inputs.libraries.items()]
    running = session.start("all-" + name, options(place, [node]), gpucheck.argv(arguments))
    running.send(inputs.archive + "\n")
    outcome = session.finish("all-" + name, running)
    result = gpucheck.result(outcome.out) if outcome.ended else None
    if result is None:
        what = probe_jobs.trouble(outcome)
        text = what.message if outcome.rc else "gpucheck printed no result: " + one_line(outcome.out)
        return Measured(None, check(NAME, name, what.status, "no result", "a result", message=text))
    # the node's name in Slurm: its host name may be another one
    return Measured(
        dict(result, node=name), check(NAME, name, PASS, "a result", "a result", message=_description(gpus))
    )


def lost(name: str, error: Exception) -> Measured:
    """The check of a node where the suite itself failed; the other nodes are tested."""
    return Measured(None, check(NAME, name, FAIL, "no result", "a result", message=one_line(repr(error))))


def _description(gpus: int) -> str:
    return f"one job with all {gpus} GPUs of the node" if gpus > 1 else "one job with the node's GPU"


def _cpus(node: Record) -> int:
    # what Slurm keeps for itself is not a job's
    most = slurm_output.number(node, "CPUEfctv") or slurm_output.number(node, "CPUTot")
    return max(1, most - slurm_output.number(node, "CPUAlloc"))


def _memory(node: Record) -> int:
    return slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem")

"""What `node_program` starts on a submit host, as the connecting user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.hostlist import fold
from ..._slurm_jobs import pmix, suite as suite_of_jobs, whole_nodes
from ..._slurm_jobs.probe_jobs import WORKERS
from ..._slurm_jobs.session import Outcome, Session
from ..._slurm_jobs.snapshot import read_snapshot
from ..._slurm_jobs.whole_nodes import Group, Rates
from . import checks, hpcc
from .checks import check, failed, skip
from .hpcc import Summary

Request = dict[str, Any]
OwnResult = dict[str, Any]
HINT = "hpcc is not installed: environment_packages_more: [hpcc], and deploy environment"
# one thread of the linear algebra for each process
_ENVIRONMENT = "--export=ALL,OMP_NUM_THREADS=1,OPENBLAS_NUM_THREADS=1,OMPI_MCA_btl_base_warn_component_unused=0"


def main(request: Request) -> OwnResult:
    """The whole suite."""
    return suite_of_jobs.run_trials(request, _measure)


def _measure(request: Request) -> OwnResult:
    snapshot = read_snapshot()
    if not snapshot.answered:
        return {"checks": [failed(checks.NODE, request["cluster"], snapshot.silence)]}
    without_pmix = pmix.missing(snapshot.config)
    return whole_nodes.measure(
        request, checks.SUITE, snapshot, partial(skip, checks.NODE),
        lambda session, group: _group(session, group, request, without_pmix),
    )  # fmt: skip


def _group(session: Session, group: Group, request: Request, without_pmix: str) -> tuple[list[Check], Rates]:
    share, memory_share = float(request["share"]), float(request["memory_share"])
    with ThreadPoolExecutor(WORKERS) as pool:
        measured = list(pool.map(lambda node: _run(session, group, [node], memory_share, without_pmix), group.nodes))
    made: list[Check] = []
    rates: Rates = []
    for node, (outcome, summary) in zip(group.nodes, measured):
        made.append(_verdict(checks.NODE, node, outcome, summary))
        if summary and summary.good:
            rates += _rates(node, summary, share)
    if len(group.nodes) < 2 or not rates:
        return made, rates
    target = fold(group.nodes)
    if without_pmix:
        return [*made, skip(checks.TOGETHER, target, without_pmix)], rates
    outcome, summary = _run(session, group, group.nodes, memory_share, "")
    made.append(_verdict(checks.TOGETHER, target, outcome, summary))
    if summary and summary.good:
        rates.append(_rate(checks.RATE_TOGETHER, target, summary.tflops * 1000, "GFLOP/s", target, share))
    return made, rates


def _run(
    session: Session, group: Group, nodes: Sequence[str], memory_share: float, without_pmix: str
) -> tuple[Outcome, Summary | None]:
    """hpcc with a process for each CPU of these nodes."""
    processes = group.cpus * len(nodes)
    text = hpcc.input_text(hpcc.matrix_size(group.memory_mb * len(nodes), memory_share), processes)
    tasks, step = (1, hpcc.ALONE) if without_pmix else (group.cpus, hpcc.TASK)
    options = [*group.options(nodes, tasks), _ENVIRONMENT, *([] if without_pmix else ["--mpi=pmix"])]
    argv = ["bash", "-lc", step + hpcc.SUMMARY, text, str(processes)]
    outcome = session.srun(f"{nodes[0]}-{len(nodes)}", options, argv)
    parsed = hpcc.summaries(outcome.out)
    summary = next((parsed[name] for name in nodes if name in parsed), None)
    return outcome, summary if summary and summary.processes == processes else None


def _verdict(name: str, target: str, outcome: Outcome, summary: Summary | None) -> Check:
    """Whether its own verification passed."""
    if summary is None:
        if "hpcc is not installed" in outcome.err:
            return skip(name, target, HINT)
        lines = outcome.err.strip().splitlines() if outcome.ended else []
        text = one_line(lines[-1] if lines else outcome.why)
        return check(name, target, SKIP if outcome.busy else FAIL, "no result", "right results", message=text)
    about = f"{summary.processes} processes, HPL of order {summary.size}"
    measured = "right results" if summary.good else "wrong results"
    return check(name, target, PASS if summary.good else FAIL, measured, "right results", message=about)


def _rates(node: str, summary: Summary, share: float) -> Iterator[dict[str, Any]]:
    kind = str(summary.processes)
    values = {
        checks.HPL: (summary.tflops * 1000, "GFLOP/s"),
        checks.STREAM: (summary.triad_gb_s * summary.processes, "GB/s"),
        checks.FFT: (summary.fft_gflops, "GFLOP/s"),
    }
    for name, (value, unit) in values.items():
        yield _rate(name, node, value, unit, kind, share)


def _rate(name: str, target: str, value: float, unit: str, kind: str, share: float) -> dict[str, Any]:
    return {
        "suite": checks.SUITE, "name": name, "target": target, "kind": kind, "value": value, "unit": unit,
        "share": share,
    }  # fmt: skip
